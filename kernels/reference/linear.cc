#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/grouped_sum.h"
#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/encode.h"
#include "quant/float8.h"
#include "quant/groups.h"

namespace sluice {
namespace {

// Columns that share a scale: without blocks the whole row.
int64_t scale_cols(const Weight& w) {
  return w.format.scales == ScaleKind::per_block ? w.format.scale_cols
                                                 : std::max<int64_t>(w.cols, 1);
}

// Codes of one weight times one row of x: each scale block is summed from zero, then scaled, then
// added. x_scales: of each block.
float dot(const float* x, const std::vector<float>& x_scales, const Weight& w, int64_t row) {
  const int64_t step = scale_cols(w);
  Weight codes = w;
  codes.format.scales = ScaleKind::none;
  float total = 0;
  for (int64_t begin = 0; begin < w.cols; begin += step) {
    float sum = 0;
    for (int64_t c = begin; c < std::min(begin + step, w.cols); ++c)
      sum += x[c] * decode_element(codes, row, c);
    total += sum * x_scales[static_cast<size_t>(begin / step)] * scale_at(w, row, begin);
  }
  return total;
}

// x as codes, kept as their values, and what they are multiples of; NaN where x is not finite.
float quantize(const float* x, int64_t cols, DType type, float* codes) {
  float top = 0;
  for (int64_t c = 0; c < cols; ++c) {
    if (!std::isfinite(x[c])) return std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, std::abs(x[c]));
  }
  const float scale = code_scale(type, top);
  for (int64_t c = 0; c < cols; ++c) {
    const float code = x[c] / scale;
    codes[c] = type == DType::i8 ? std::nearbyint(std::clamp(code, -127.0f, 127.0f))
                                 : e4m3_to_float(float_to_e4m3(code));
  }
  return scale;
}

// The product of i8 codes is exact, and scaled at the end.
float dot_i8(const float* x, float x_scale, const Weight& w, int64_t row) {
  int64_t sum = 0;
  for (int64_t c = 0; c < w.cols; ++c) {
    const int code = std::to_integer<int>(w.data[element_offset(w, row, c)]) - 128;
    sum += static_cast<int64_t>(x[c]) * code;
  }
  return static_cast<float>(sum) * x_scale * w.scales[row];
}

// A row of x in the weight's order of columns.
void order_inputs(const float* x, const Weight& w, float* out) {
  for (int64_t c = 0; c < w.cols; ++c) out[c] = x[w.order != nullptr ? w.order[c] : c];
}

// The sum of kernels/grouped_sum.h; `whole` and `factors` are the row's inputs.
float dot_whole(const int32_t* whole, const float* factors, int64_t cols, int64_t wide,
                const GroupedRow& row) {
  float total = 0;
  for (int64_t first = 0; first < cols; first += kSumCols) {
    float block = 0;
    const int64_t block_end = std::min(first + kSumCols, cols);
    for (int64_t begin = first, end; begin < block_end; begin = end) {
      const int64_t group = begin / wide;
      end = std::min((group + 1) * wide, block_end);
      int32_t upper = 0, lower = 0, inputs = 0;
      for (int64_t c = begin; c < end; ++c) {
        const auto code = static_cast<int32_t>(row.codes[c]);
        upper += upper_part(whole[c]) * code;
        lower += lower_part(whole[c]) * code;
        inputs += whole[c];
      }
      const float product = segment_value(upper, lower) * row.scales[group];
      block += product - static_cast<float>(inputs) * row.mins[group];
    }
    total += block * factors[first / kSumCols];
  }
  return total;
}

void grouped_linear_whole(Tensor x, const Weight& w, const float* bias, Tensor y) {
  std::vector<float> codes(static_cast<size_t>(w.cols)), input(codes.size());
  std::vector<float> scales(static_cast<size_t>(groups_of(w.format, w.cols))), mins(scales.size());
  const int64_t blocks = ceil_div(w.cols, kSumCols);
  std::vector<int32_t> whole(static_cast<size_t>(x.rows * w.cols));
  std::vector<float> factors(static_cast<size_t>(x.rows * blocks));
  for (int64_t i = 0; i < x.rows; ++i) {
    order_inputs(x.row<float>(i), w, input.data());
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = b * kSumCols;
      const auto integers = w.format.quantized_input ? byte_inputs : whole_inputs;
      factors[static_cast<size_t>(i * blocks + b)] =
          integers(input.data() + first, std::min(kSumCols, w.cols - first),
                   whole.data() + i * w.cols + first);
    }
  }
  for (int64_t o = 0; o < w.rows; ++o) {
    const GroupedRow row{codes.data(), scales.data(), mins.data()};
    decode_groups(w, o, row);
    for (int64_t i = 0; i < x.rows; ++i) {
      float total = dot_whole(whole.data() + i * w.cols, factors.data() + i * blocks, w.cols,
                              group_cols(w.format), row);
      total *= scale_at(w, o, 0);
      y.row<float>(i)[o] = bias == nullptr ? total : total + bias[o];
    }
  }
}

// Grouped weights, one output after another.
void grouped_linear(Tensor x, const Weight& w, const float* bias, Tensor y, bool round) {
  const bool whole = (round || w.format.quantized_input) && has_integer_codes(w.format);
  if (whole) return grouped_linear_whole(x, w, bias, y);
  const int64_t wide = group_cols(w.format);
  std::vector<float> codes(static_cast<size_t>(w.cols)), input(codes.size());
  std::vector<float> scales(static_cast<size_t>(groups_of(w.format, w.cols))), mins(scales.size());
  for (int64_t o = 0; o < w.rows; ++o) {
    decode_groups(w, o, {codes.data(), scales.data(), mins.data()});
    for (float& code : codes) code = round ? bf16_to_float(float_to_bf16(code)) : code;
    for (int64_t i = 0; i < x.rows; ++i) {
      order_inputs(x.row<float>(i), w, input.data());
      for (float& v : input) v = round ? bf16_to_float(float_to_bf16(v)) : v;
      float total = 0;
      for (size_t g = 0; g < scales.size(); ++g) {
        const size_t begin = g * static_cast<size_t>(wide);
        float sum = 0, inputs = 0;
        for (size_t c = begin; c < std::min(begin + static_cast<size_t>(wide), input.size()); ++c) {
          sum += input[c] * codes[c];
          inputs += input[c];
        }
        total += sum * scales[g] - inputs * mins[g];
      }
      total *= scale_at(w, o, 0);
      y.row<float>(i)[o] = bias == nullptr ? total : total + bias[o];
    }
  }
}

}  // namespace

void ReferenceKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  check_linear(x, w, y);
  if (is_grouped(w.format)) return grouped_linear(x, w, bias, y, compute_ == Compute::bf16);
  const DType type = w.format.dtype;
  const bool codes = type == DType::i8 || w.format.quantized_input;
  const bool round = compute_ == Compute::bf16 && (type == DType::bf16 || type == DType::f8_e4m3);
  const int64_t step = scale_cols(w);
  std::vector<float> input(static_cast<size_t>(x.cols));
  std::vector<float> x_scales(static_cast<size_t>(ceil_div(x.cols, step)), 1.0f);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* row = x.row<float>(i);
    if (codes) {
      for (int64_t c = 0; c < x.cols; c += step) {
        x_scales[static_cast<size_t>(c / step)] =
            quantize(row + c, std::min(step, x.cols - c), type, input.data() + c);
      }
    } else {
      std::transform(row, row + x.cols, input.begin(),
                     [&](float v) { return round ? bf16_to_float(float_to_bf16(v)) : v; });
    }
    for (int64_t o = 0; o < w.rows; ++o) {
      const float sum = type == DType::i8 ? dot_i8(input.data(), x_scales[0], w, o)
                                          : dot(input.data(), x_scales, w, o);
      y.row<float>(i)[o] = bias == nullptr ? sum : sum + bias[o];
    }
  }
}

}  // namespace sluice
