#include <algorithm>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/float8.h"

namespace sluice {
namespace {

// Codes of one weight times one row of x: each scale block is summed from zero, then scaled, then
// added. Without blocks, one block is the whole row.
float dot(const float* x, const Weight& w, int64_t row, bool round_to_bf16) {
  const bool blocks = w.format.scales == ScaleKind::per_block;
  const int64_t step = blocks ? kScaleBlock : std::max<int64_t>(w.cols, 1);
  Weight codes = w;
  codes.format.scales = ScaleKind::none;
  float total = 0;
  for (int64_t begin = 0; begin < w.cols; begin += step) {
    float sum = 0;
    for (int64_t c = begin; c < std::min(begin + step, w.cols); ++c) {
      float a = round_to_bf16 ? bf16_to_float(float_to_bf16(x[c])) : x[c];
      sum += a * decode_element(codes, row, c);
    }
    total += sum * scale_at(w, row, begin);
  }
  return total;
}

}  // namespace

void ReferenceKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  check_linear(x, w, y);
  const bool narrow = w.format.dtype == DType::bf16 || w.format.dtype == DType::f8_e4m3;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t o = 0; o < w.rows; ++o) {
      float sum = dot(x.row<float>(i), w, o, narrow && compute_ == Compute::bf16);
      y.row<float>(i)[o] = bias == nullptr ? sum : sum + bias[o];
    }
  }
}

}  // namespace sluice
