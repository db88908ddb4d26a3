// Scales and codes of groups of columns, as online quantization chooses them: one group and one
// element at a time, for host and device alike. quant/encode_groups.h has whole rows.
//
// amax is the largest finite magnitude of a group. A code stands for x / scale.
//   integers of `bits` bits  scale = amax / (2^(bits - 1) - 1), or 1 where that is zero; rounded to
//                            nearest, ties to even; symmetric: the lowest code is not used
//   E2M1, E4M3 with E8M0     the scales of compressed-tensors (not the floor of "OCP Microscaling
//                            Formats", 1.0): amax with 1/4 added to its mantissa, cut to a power of
//                            two, and divided by 2^2 or 2^8. So amax is at most 7/4 of that power,
//                            and few codes are clipped. Zeros have the least scale, 2^-127.
//   E2M1 with E4M3           NVFP4 as compressed-tensors has it: scale = E4M3(amax / 6 * outer) /
//                            outer, with outer = 448 * 6 / (the tensor's amax), or 1 where that is
//                            not finite. A scale of 0 becomes 0.125. Of BF16 elements amax / 6 and
//                            outer are rounded to BF16, as there.
//   NF4                      of "QLoRA" (arXiv:2305.14314): scale = amax; the nearest of 16 levels
// Codes saturate. NaN becomes 0, and NaN in E4M3. -0 has no sign in E2M1; what is rounded to zero
// has one.
#pragma once

#include <bit>
#include <cstdint>

#include "quant/float8.h"
#include "quant/format.h"

namespace sluice {

using E2M1 = MiniFloat<1, 1>;
inline constexpr float kE2M1Max = 6.0f;

// E2M1 saturates and keeps the sign, as quant/float8.h says; it has no NaN: that becomes 0.
SLUICE_HD constexpr uint32_t float_to_e2m1(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinityBits) return 0;
  const uint32_t code =
      magnitude >= std::bit_cast<uint32_t>(kE2M1Max) ? 7 : E2M1::encode(magnitude);
  return (bits >> 28 & 8) | code;
}

// Levels of NF4, ascending: 7 is zero.
struct Nf4 {
  static constexpr int kZero = 7;
  SLUICE_HD static constexpr float level(int code) {
    constexpr float kLevels[] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};
    return kLevels[code];
  }
};

// The rules of a format's groups.
struct GroupCoding {
  CodeTable table = CodeTable::integers;
  int bits = 4;
  DType scale_type = DType::f32;
  DType stored = DType::f32;  // elements' type, to which NVFP4's divisions are rounded
};

inline GroupCoding group_coding(const WeightFormat& format, DType stored) {
  return {format.table, format.bits, format.scale_type, stored};
}

// The bits that are stored, of scale_type, and what they mean.
struct GroupScale {
  uint32_t stored = 0;
  float value = 1;
};

SLUICE_HD constexpr float rounded_as(const GroupCoding& coding, float x) {
  if (coding.stored == DType::bf16) return bf16_to_float(float_to_bf16(x));
  return coding.stored == DType::f16 ? f16_to_float(float_to_f16(x)) : x;
}

// The outer scale of a tensor.
SLUICE_HD constexpr float outer_scale(const GroupCoding& coding, float tensor_amax) {
  constexpr float kMost = kE4M3Max * kE2M1Max;
  if (!(tensor_amax > 0)) return 1;
  constexpr float kInfinity = std::bit_cast<float>(kFloatInfinityBits);
  const float exact = 1 / tensor_amax * kMost;
  const float outer = rounded_as(coding, rounded_as(coding, 1 / tensor_amax) * kMost);
  if (outer < kInfinity) return outer;
  return exact < kInfinity ? exact : 1;  // F16 ends early
}

SLUICE_HD constexpr GroupScale e8m0_scale(const GroupCoding& coding, float amax) {
  constexpr uint32_t kQuarter = 0x00200000, kLargest = 254;
  const uint32_t power = (std::bit_cast<uint32_t>(amax) + kQuarter) >> 23;
  const uint32_t capped = power < kLargest ? power : kLargest;
  const uint32_t largest_code = coding.table == CodeTable::e2m1 ? 2 : 8;  // as a power of two
  const uint32_t code = capped > largest_code ? capped - largest_code : 0;
  return {code, e8m0_to_float(static_cast<uint8_t>(code))};
}

SLUICE_HD constexpr GroupScale group_scale(const GroupCoding& coding, float amax, float outer) {
  if (coding.scale_type == DType::f8_e8m0) return e8m0_scale(coding, amax);
  if (coding.scale_type == DType::f8_e4m3) {
    constexpr uint32_t kEighth = 0x20;
    const uint32_t code = float_to_e4m3(rounded_as(coding, amax / kE2M1Max) * outer);
    const uint32_t stored = code == 0 ? kEighth : code;
    return {stored, e4m3_to_float(static_cast<uint8_t>(stored)) / outer};
  }
  float scale = amax;
  if (coding.table == CodeTable::integers) {
    scale = amax / static_cast<float>((1 << (coding.bits - 1)) - 1);
    if (!(scale > 0)) scale = 1;
  }
  return {std::bit_cast<uint32_t>(scale), scale};
}

SLUICE_HD constexpr uint32_t nf4_code(float x) {
  if (x != x) return Nf4::kZero;
  uint32_t code = 0;
  for (int level = 0; level < 15; ++level)
    code += x > (Nf4::level(level) + Nf4::level(level + 1)) / 2 ? 1u : 0u;
  return code;
}

SLUICE_HD constexpr uint32_t group_code(const GroupCoding& coding, float x, float scale) {
  // A quotient of NaN may lose its sign.
  const float quotient = x == x && scale > 0 ? x / scale : x;
  switch (coding.table) {
    case CodeTable::integers: {
      // Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
      constexpr float kMagic = 12582912.0f;
      const int most = (1 << (coding.bits - 1)) - 1;
      const auto limit = static_cast<float>(most);
      const float in_range = quotient > limit    ? limit
                             : quotient < -limit ? -limit
                             : x == x            ? quotient
                                                 : 0.0f;
      return (std::bit_cast<uint32_t>(in_range + kMagic) + static_cast<uint32_t>(most + 1)) &
             ((2u << (coding.bits - 1)) - 1);
    }
    case CodeTable::e2m1:
      return x == 0 ? 0 : float_to_e2m1(quotient);
    case CodeTable::e4m3:
      return float_to_e4m3(quotient);
    case CodeTable::own:
      return nf4_code(quotient);
  }
  return 0;
}

}  // namespace sluice
