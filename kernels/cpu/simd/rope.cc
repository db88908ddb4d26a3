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

void rope_neighbours(float* __restrict head, const float* __restrict cos,
                     const float* __restrict sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
