#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/silu.h"
#include "kernels/kernels.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The sum goes from the oldest input to the newest, whatever the number of columns or rows.
template <bool kSilu>
void convolve(const ConvJob& job, int64_t column, int64_t count) {
  Vf weight[kMostConvWidth] = {}, inputs[kMostConvWidth] = {};
  const int64_t past = job.width - 1;
  for (int64_t w = 0; w < job.width; ++w) {
    for (int64_t i = 0; i < count; ++i) weight[w][i] = job.weight[(column + i) * job.width + w];
  }
  for (int64_t p = 0; p < past && !job.fresh; ++p)
    inputs[p] = load_some(job.inputs[p] + column, count, 0);
  const Vf bias = job.bias != nullptr ? load_some(job.bias + column, count, 0) : Vf{};
  for (int64_t r = 0; r < job.rows; ++r) {
    inputs[past] = load_some(job.x + r * job.x_stride + column, count, 0);
    Vf sum = bias;
    for (int64_t w = 0; w <= past; ++w) sum = fma(weight[w], inputs[w], sum);
    if constexpr (kSilu) sum = silu(sum);
    store_some(job.y + r * job.y_stride + column, sum, count);
    for (int64_t w = 0; w < past; ++w) inputs[w] = inputs[w + 1];
  }
  for (int64_t p = 0; p < past; ++p) store_some(job.inputs[p] + column, inputs[p], count);
}

}  // namespace

void causal_conv(const ConvJob& job) {
  for (int64_t c = 0; c < job.cols; c += kLanes) {
    const int64_t count = job.cols - c < kLanes ? job.cols - c : kLanes;
    job.silu ? convolve<true>(job, c, count) : convolve<false>(job, c, count);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
