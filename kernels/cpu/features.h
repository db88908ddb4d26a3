// What this machine's CPU and system have, and lack for an instruction set.
#pragma once

#include <string>

namespace sluice {

// In words; "" if nothing.
std::string missing_for_avx2();
std::string missing_for_avx512_bf16();
// Beyond avx512_bf16: the CPU's instructions, the system's saving of tile registers, and its
// permission to use them, which the first call asks for (for the whole process).
std::string missing_for_amx();

// Those of the CPU that the instruction sets ask for, by their names in /proc/cpuinfo.
std::string found_features();

// Whether a core keeps as many lines on their way into L1 as memory's rate takes: AMD's Zen 5 does,
// Zen 4 does not (docs/benchmarks.md); others are taken to be like Zen 4.
bool fetches_into_l1();

}  // namespace sluice
