#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {

void add(float* __restrict x, const float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

}  // namespace sluice::cpu::SLUICE_ISA
