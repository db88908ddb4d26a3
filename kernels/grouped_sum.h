// The sum of a linear layer whose weights are in groups (quant/groups.h), on the CPU with bfloat16
// compute. Every instruction set gives the same bits, whatever the number of rows.
//
// Columns, in the weight's order, are cut into blocks of kSumCols, the last of which may be
// shorter. The inputs of a row in a block, rounded to bf16, are written as integers:
//   X = x / factor, rounded to nearest even;  factor = 2^(E - 21)
// where E is the exponent of the block's largest |x|, and at least kLeastExponent, so that factors
// are normal numbers. So X is below 2^22, is exact for inputs down to 2^-14 of the largest, and
// else is off by at most 2^-22 of it, which is float32's own rounding. Inputs below 2^-127 may
// become 0. A block with an input that is not finite has NaN as its factor, and 0 for all X: the
// row's outputs are NaN, as a rule, and no other row's are.
//
// Codes are integers of at most 8 bits and a sign; floats of four bits are doubled and their scales
// halved. X is 256 H + L with L a signed byte. A segment is what a group and a block have in
// common. Its products are summed without rounding, as int32 that cannot overflow, so that neither
// order nor instruction matters:
//   value   = float(sum of H * code) * 256 + float(sum of L * code)
//   total   = value * scale - float(sum of X) * min, if the format has minimums
// with each operation rounded to float32, never fused. Segments of a block are added in order from
// zero. Their sum times the factor is added to the output, block after block; at last it is
// multiplied by the row's scale, if the format has one, and the bias is added.
//
// Inputs are rounded to 8 bits instead where a format says quantized_input (the scheme
// q8_activations), whatever the compute type, and all else is as above:
//   X = x * (127 / largest), rounded to nearest even;  factor = largest / 127
// where `largest` is the block's largest |x|, and at least 2^kLeastExponent.
//
// Otherwise, with float32 compute, and for codes that are no such integers (E4M3, and tables of a
// weight's own such as NF4's: has_integer_codes), the products of a group are summed in float32 in
// column order instead. So does a GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quant/float8.h"

namespace sluice {

inline constexpr int64_t kSumCols = 256;
inline constexpr int kLeastExponent = -105;

// Writes the integers of `count` <= kSumCols inputs of a block, and returns their factor.
inline float whole_inputs(const float* x, int64_t count, int32_t* whole) {
  float largest = 0;
  for (int64_t c = 0; c < count; ++c) {
    const float magnitude = std::abs(bf16_to_float(float_to_bf16(x[c])));
    if (!std::isfinite(magnitude)) {
      std::fill_n(whole, count, 0);
      return std::numeric_limits<float>::quiet_NaN();
    }
    largest = std::max(largest, magnitude);
  }
  const int exponent = std::max(largest > 0 ? std::ilogb(largest) : kLeastExponent, kLeastExponent);
  for (int64_t c = 0; c < count; ++c) {
    const float scaled = std::ldexp(bf16_to_float(float_to_bf16(x[c])), 21 - exponent);
    whole[c] = static_cast<int32_t>(std::nearbyint(scaled));
  }
  return std::ldexp(1.0f, exponent - 21);
}

// The same for inputs that are rounded to 8 bits.
inline float byte_inputs(const float* x, int64_t count, int32_t* whole) {
  float largest = std::ldexp(1.0f, kLeastExponent);
  for (int64_t c = 0; c < count; ++c) {
    if (!std::isfinite(x[c])) {
      std::fill_n(whole, count, 0);
      return std::numeric_limits<float>::quiet_NaN();
    }
    largest = std::max(largest, std::abs(x[c]));
  }
  const float multiplier = 127 / largest;
  for (int64_t c = 0; c < count; ++c)
    whole[c] = static_cast<int32_t>(std::nearbyint(x[c] * multiplier));
  return largest / 127;
}

// The parts of X.
inline int32_t lower_part(int32_t whole) { return static_cast<int8_t>(whole); }
inline int32_t upper_part(int32_t whole) { return (whole - lower_part(whole)) / 256; }

// Value of a segment, of its exact sums.
inline float segment_value(int32_t upper, int32_t lower) {
  return static_cast<float>(upper) * 256 + static_cast<float>(lower);
}

}  // namespace sluice
