// Runs the machine code of the real AMX kernels on a processor that lacks AMX.
#pragma once

namespace sluice::test {

// Hands this process's tile instructions, which such a processor refuses (SIGILL), to the emulated
// tiles from now on. So a test sees what the compiler made of the kernels: operands, strides, and
// whether a configuration was written before it is loaded. Only those instructions and addressing
// modes that HardwareTiles uses are known; another illegal instruction ends the process as ever.
void trap_tiles();

}  // namespace sluice::test
