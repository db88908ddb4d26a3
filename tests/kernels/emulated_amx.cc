// Compiled for each SLUICE_ISA of emulated_amx.h.
#include "tests/kernels/emulated_amx.h"

#include "kernels/cpu/amx/ops.h"
#include "tests/kernels/emulated_tiles.h"

namespace sluice::cpu::SLUICE_ISA {

constinit const Ops kEmulatedAmx = tile_ops<EmulatedTiles>("emulated amx");

}  // namespace sluice::cpu::SLUICE_ISA
