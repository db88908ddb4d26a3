#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/encode.h"
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

// x as codes and what they are multiples of; NaN for a row that is not finite.
float quantize(const float* x, int64_t cols, std::vector<int32_t>& codes) {
  float top = 0;
  for (int64_t c = 0; c < cols; ++c) {
    if (!std::isfinite(x[c])) return std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, std::abs(x[c]));
  }
  const float scale = code_scale(DType::i8, top);
  for (int64_t c = 0; c < cols; ++c) {
    float code = std::nearbyint(std::clamp(x[c] / scale, -127.0f, 127.0f));
    codes[static_cast<size_t>(c)] = static_cast<int32_t>(code);
  }
  return scale;
}

// The product of the codes is exact, and scaled at the end.
void linear_i8(Tensor x, const Weight& w, const float* bias, Tensor y) {
  std::vector<int32_t> codes(static_cast<size_t>(x.cols));
  for (int64_t i = 0; i < x.rows; ++i) {
    const float scale = quantize(x.row<float>(i), x.cols, codes);
    for (int64_t o = 0; o < w.rows; ++o) {
      int64_t sum = 0;
      for (int64_t c = 0; c < w.cols; ++c) {
        const int code = std::to_integer<int>(w.data[element_offset(w, o, c)]) - 128;
        sum += int64_t{codes[static_cast<size_t>(c)]} * code;
      }
      const float product = static_cast<float>(sum) * scale * w.scales[o];
      y.row<float>(i)[o] = bias == nullptr ? product : product + bias[o];
    }
  }
}

}  // namespace

void ReferenceKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  check_linear(x, w, y);
  if (w.format.dtype == DType::i8) return linear_i8(x, w, bias, y);
  const bool narrow = w.format.dtype == DType::bf16 || w.format.dtype == DType::f8_e4m3;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t o = 0; o < w.rows; ++o) {
      float sum = dot(x.row<float>(i), w, o, narrow && compute_ == Compute::bf16);
      y.row<float>(i)[o] = bias == nullptr ? sum : sum + bias[o];
    }
  }
}

}  // namespace sluice
