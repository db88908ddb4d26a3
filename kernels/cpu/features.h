// Features of this machine's CPU and system, and those that an instruction set lacks.
#pragma once

#include <string>

namespace sluice {

// Names in words what the instruction set lacks here; "" if nothing.
std::string missing_for_avx2();
std::string missing_for_avx512_bf16();
// Beyond avx512_bf16: the CPU's instructions, the system's saving of tile registers, and its
// permission to use them, which the first call asks for (for the whole process).
std::string missing_for_amx();

// Names, as in /proc/cpuinfo, of the CPU's features that the instruction sets need.
std::string found_features();

// Returns whether a core can keep as many lines on their way into L1 as memory's rate needs. AMD's
// Zen 5 can, Zen 4 cannot (docs/benchmarks.md). Other CPUs are taken to be like Zen 4.
bool fetches_into_l1();

}  // namespace sluice
