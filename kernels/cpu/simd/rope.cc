#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {

void rope(float* head, const float* __restrict cos, const float* __restrict sin, int64_t half) {
  float* __restrict low = head;
  float* __restrict high = head + half;
  for (int64_t i = 0; i < half; ++i) {
    const float a = low[i], b = high[i];
    low[i] = a * cos[i] - b * sin[i];
    high[i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
