#include "kernels/cpu/simd/table.h"

#define SLUICE_TEXT_OF(name) #name
#define SLUICE_TEXT(name) SLUICE_TEXT_OF(name)

namespace sluice::cpu::SLUICE_ISA {

constinit const Ops kOps = vector_ops(SLUICE_TEXT(SLUICE_ISA));

}  // namespace sluice::cpu::SLUICE_ISA
