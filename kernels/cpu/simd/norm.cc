#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The sum of x - mean, or of its squares (power 2). Its order depends on the number of columns
// alone: four interleaved sums of vectors.
template <int kPower, bool kCentered>
float sum_of_powers(const float* x, int64_t cols, float mean) {
  auto accumulate = [&](Vf total, Vf v) {
    if constexpr (kCentered) v = v - mean;
    return kPower == 2 ? fma(v, v, total) : total + v;
  };
  Vf sums[4] = {};
  int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) sums[i] = accumulate(sums[i], load(x + c + i * kLanes));
  }
  for (; c < cols; c += kLanes) {
    const Vf v = load_some(x + c, cols - c < kLanes ? cols - c : kLanes, mean);
    sums[0] = accumulate(sums[0], v);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// (x - mean) * scale * weight + bias
template <bool kCentered, bool kBias>
void scale_row(const NormJob& job, const float* x, float mean, float scale, float* y) {
  auto apply = [&](auto v, auto weight, auto bias) {
    if constexpr (kCentered) v = v - mean;
    v = v * scale * weight;
    if constexpr (kBias) v = v + bias;
    return v;
  };
  const float* bias = kBias ? job.bias : job.weight;
  int64_t c = 0;
  for (; c + kLanes <= job.cols; c += kLanes)
    store(y + c, apply(load(x + c), load(job.weight + c), load(bias + c)));
  for (; c < job.cols; ++c) y[c] = apply(x[c], job.weight[c], bias[c]);
}

}  // namespace

float sum_squares(const float* x, int64_t count) { return sum_of_powers<2, false>(x, count, 0); }

void norm(const NormJob& job, const float* x, float* y) {
  const auto cols = static_cast<float>(job.cols);
  const float mean = job.centered ? sum_of_powers<1, false>(x, job.cols, 0) / cols : 0;
  const float squares = job.squares != nullptr ? *job.squares
                        : job.centered         ? sum_of_powers<2, true>(x, job.cols, mean)
                                               : sum_of_powers<2, false>(x, job.cols, 0);
  const float count = job.squares != nullptr ? static_cast<float>(job.squares_cols) : cols;
  const float scale = 1.0f / __builtin_sqrtf(squares / count + job.eps);
  if (job.bias != nullptr) {
    job.centered ? scale_row<true, true>(job, x, mean, scale, y)
                 : scale_row<false, true>(job, x, mean, scale, y);
  } else {
    job.centered ? scale_row<true, false>(job, x, mean, scale, y)
                 : scale_row<false, false>(job, x, mean, scale, y);
  }
}

void add_norm(const NormJob& job, float* residual, const float* x, float* y) {
  add(residual, x, job.cols);
  norm(job, residual, y);
}

}  // namespace sluice::cpu::SLUICE_ISA
