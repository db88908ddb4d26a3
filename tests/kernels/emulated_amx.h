// The instruction set "amx" on emulated tiles, for tests alone: the same kernels as on a machine
// that has AMX, with vector code of SLUICE_ISA around the tiles.
#pragma once

#include "kernels/cpu/ops.h"

namespace sluice::cpu::portable {
extern const Ops kEmulatedAmx;
}
#if defined(__x86_64__)
namespace sluice::cpu::avx512_bf16 {  // as the real one
extern const Ops kEmulatedAmx;
}
namespace sluice::cpu::emulated_avx512 {
extern const Ops kEmulatedAmx;
}
namespace sluice::cpu::amx {
extern const Ops kOps;  // the real one
}
#endif
