#include "quant/make_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/float8.h"
#include "quant/make_k_blocks.h"
#include "src/base/check.h"

namespace sluice {
namespace {

constexpr int kCols = 32;  // of a block of Q8_0, Q4_0 and MXFP4
using Columns = std::span<const float, kCols>;

void put_f16(float value, uint8_t* to) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// The nearest integer; halves away from zero.
int rounded(float x) { return static_cast<int>(x + std::copysign(0.5f, x)); }

// A scale so small that it has no inverse is 0 in F16, too.
float inverse_of(float scale) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  return std::isfinite(inverse) ? inverse : 0;
}

// Codes of four bits: column c in the lower bits of byte c, column c + 16 in the upper ones.
void put_nibbles(std::span<const uint8_t, kCols> codes, uint8_t* to) {
  for (size_t c = 0; c < kCols / 2; ++c)
    to[c] = static_cast<uint8_t>(codes[c] | codes[c + kCols / 2] << 4);
}

void make_q8_0(Columns x, uint8_t* to) {
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  const float scale = amax / 127, by = inverse_of(scale);
  put_f16(scale, to);
  for (size_t c = 0; c < kCols; ++c)
    to[2 + c] = static_cast<uint8_t>(static_cast<int8_t>(rounded(x[c] * by)));
}

// The value of the largest magnitude becomes code 0, which stands for -8.
void make_q4_0(Columns x, uint8_t* to) {
  constexpr int kZero = 8, kMost = 15;
  const float most = *std::ranges::max_element(x, {}, [](float v) { return std::abs(v); });
  const float scale = most / -kZero, by = inverse_of(scale);
  put_f16(scale, to);
  std::array<uint8_t, kCols> codes{};
  for (size_t c = 0; c < kCols; ++c) {
    // In float64, as the sum must be rounded once.
    const auto place = static_cast<float>(double{x[c]} * double{by} + kZero + 0.5);
    codes[c] = static_cast<uint8_t>(std::clamp(static_cast<int>(place), 0, kMost));
  }
  put_nibbles(codes, to + 2);
}

// The largest value is at most 6 times the scale, or a little more. Of two codes that are equally
// near the smaller one is taken.
uint8_t nearest_e2m1(float magnitude) {
  int code = 0;
  for (const float border : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f})
    code += magnitude > border ? 1 : 0;
  return static_cast<uint8_t>(code);
}

void make_mxfp4(Columns x, uint8_t* to) {
  constexpr int kBias = 127, kMostExponent = 2;
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  const int power = amax > 0 ? std::ilogb(amax) - kMostExponent : -kBias;
  to[0] = static_cast<uint8_t>(std::clamp(power + kBias, 0, 254));
  const float scale = e8m0_to_float(to[0]);
  std::array<uint8_t, kCols> codes{};
  for (size_t c = 0; c < kCols; ++c) {
    const uint8_t code = nearest_e2m1(std::abs(x[c]) / scale);
    codes[c] = static_cast<uint8_t>(code | (x[c] < 0 && code > 0 ? 8 : 0));
  }
  put_nibbles(codes, to + 1);
}

template <int kBlockCols, void (*kMake)(std::span<const float, kBlockCols>, uint8_t*)>
void make_blocks(DType type, std::span<const float> row, uint8_t* to) {
  for (size_t c = 0; c < row.size(); c += kBlockCols, to += block_layout(type).bytes)
    kMake(row.subspan(c).first<kBlockCols>(), to);
}

template <uint16_t (*kConvert)(float)>
void convert(std::span<const float> row, std::byte* to) {
  for (const float value : row) {
    const uint16_t bits = kConvert(value);
    std::memcpy(to, &bits, sizeof bits);
    to += sizeof bits;
  }
}

}  // namespace

std::span<const DType> made_types() {
  static constexpr std::array kTypes{DType::f32,  DType::f16,  DType::bf16,
                                     DType::q8_0, DType::q4_0, DType::q4_k,
                                     DType::q5_k, DType::q6_k, DType::e2m1_e8m0};
  return kTypes;
}

void make_row(DType type, std::span<const float> row, std::byte* to) {
  auto* blocks = reinterpret_cast<uint8_t*>(to);
  switch (type) {
    case DType::f32:
      std::memcpy(to, row.data(), row.size_bytes());
      return;
    case DType::f16:
      return convert<float_to_f16>(row, to);
    case DType::bf16:
      return convert<float_to_bf16>(row, to);
    case DType::q8_0:
      return make_blocks<kCols, make_q8_0>(type, row, blocks);
    case DType::q4_0:
      return make_blocks<kCols, make_q4_0>(type, row, blocks);
    case DType::q4_k:
      return make_blocks<kSuperCols, make_q4_k>(type, row, blocks);
    case DType::q5_k:
      return make_blocks<kSuperCols, make_q5_k>(type, row, blocks);
    case DType::q6_k:
      return make_blocks<kSuperCols, make_q6_k>(type, row, blocks);
    case DType::e2m1_e8m0:
      return make_blocks<kCols, make_mxfp4>(type, row, blocks);
    default:
      check(false, "a type that can be made");
  }
}

}  // namespace sluice
