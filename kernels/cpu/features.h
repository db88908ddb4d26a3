// What this machine's CPU and system lack for an instruction set, in words; "" if nothing.
#pragma once

#include <string>

namespace sluice {

std::string missing_for_avx2();
std::string missing_for_avx512_bf16();
// Beyond avx512_bf16: the CPU's instructions, the system's saving of tile registers, and its
// permission to use them, which the first call asks for (for the whole process).
std::string missing_for_amx();

}  // namespace sluice
