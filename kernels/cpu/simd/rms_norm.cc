#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The sum's order depends on the number of columns alone: four interleaved sums of vectors.
float sum_of_squares(const float* x, int64_t cols) {
  Vf sums[4] = {};
  int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) {
      const Vf v = load(x + c + i * kLanes);
      sums[i] = fma(v, v, sums[i]);
    }
  }
  for (; c < cols; c += kLanes) {
    const Vf v = load_some(x + c, cols - c < kLanes ? cols - c : kLanes, 0);
    sums[0] = fma(v, v, sums[0]);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace

void rms_norm(const float* x, const float* weight, int64_t cols, float eps, float* y) {
  const float mean = sum_of_squares(x, cols) / static_cast<float>(cols);
  const float scale = 1.0f / __builtin_sqrtf(mean + eps);
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) store(y + c, load(x + c) * scale * load(weight + c));
  for (; c < cols; ++c) y[c] = x[c] * scale * weight[c];
}

void add_rms_norm(float* residual, const float* x, const float* weight, int64_t cols, float eps,
                  float* y) {
  add(residual, x, cols);
  rms_norm(residual, weight, cols, eps, y);
}

}  // namespace sluice::cpu::SLUICE_ISA
