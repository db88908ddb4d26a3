// The instruction set "amx"; compiled as avx512_bf16, whose functions it shares.
#include "kernels/cpu/amx/ops.h"

namespace sluice::cpu::amx {

extern const Ops kOps;
constinit const Ops kOps = SLUICE_ISA::tile_ops<SLUICE_ISA::HardwareTiles>("amx");

}  // namespace sluice::cpu::amx
