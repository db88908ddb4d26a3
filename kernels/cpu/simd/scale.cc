#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/tanh.h"

namespace sluice::cpu::SLUICE_ISA {

void scale(float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void soft_cap(float* x, float cap, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, cap * tanh(load(x + i) / cap));
  const int64_t left = count - i;
  if (left > 0) store_some(x + i, cap * tanh(load_some(x + i, left, 0) / cap), left);
}

void clamp(float* x, float limit, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] < -limit ? -limit : x[i] > limit ? limit : x[i];
}

}  // namespace sluice::cpu::SLUICE_ISA
