// Number formats of 8 and 16 bits, as scalar functions that compile for host and device alike.
//   bf16, IEEE half (f16); E4M3 and E5M2 of "FP8 Formats for Deep Learning" (arXiv:2209.05433), as
//   torch's float8_e4m3fn (no infinities, NaN = 0x7f/0xff, largest 448) and float8_e5m2.
//
// Every conversion to fewer bits rounds to nearest, ties to even. bf16 and f16 overflow to infinity
// as IEEE 754 does; the 8-bit formats saturate: what exceeds the largest finite value, infinities
// included, becomes that value. NaN stays NaN and the sign, of zeros too, is kept.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HD __host__ __device__
#else
#define SLUICE_HD
#endif

namespace sluice {

inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kE5M2Max = 57344.0f;

// A binary format with an implied leading one, gradual underflow and exponents biased by kBias.
template <int kMantissaBits, int kBias>
struct MiniFloat {
  // The code of a magnitude (sign bit clear) that rounds to a finite value.
  SLUICE_HD static constexpr uint32_t encode(uint32_t float_bits) {
    constexpr int kDropped = 23 - kMantissaBits;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
    if (float_bits < kSmallestNormal) {
      // The sum's last mantissa bit weighs as much as the format's smallest subnormal, so that the
      // addition itself rounds, and leaves the code in the low bits.
      constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kBias - kMantissaBits) << 23;
      float sum = std::bit_cast<float>(float_bits) + std::bit_cast<float>(kMagic);
      return std::bit_cast<uint32_t>(sum) - kMagic;
    }
    uint32_t last_kept = float_bits >> kDropped & 1;
    float_bits += (1u << (kDropped - 1)) - 1 + last_kept;
    return (float_bits >> kDropped) - (static_cast<uint32_t>(127 - kBias) << kMantissaBits);
  }

  // The value of a finite code without its sign bit: exact.
  SLUICE_HD static constexpr float decode(uint32_t magnitude) {
    constexpr uint32_t kScale = static_cast<uint32_t>(127 + 127 - kBias) << 23;  // 2^(127 - kBias)
    return std::bit_cast<float>(magnitude << (23 - kMantissaBits)) * std::bit_cast<float>(kScale);
  }
};
using E4M3 = MiniFloat<3, 7>;
using E5M2 = MiniFloat<2, 15>;
using Half = MiniFloat<10, 15>;

inline constexpr uint32_t kFloatInfinityBits = 0x7f800000;
inline constexpr uint32_t kFloatNanBits = 0x7fc00000;

SLUICE_HD constexpr float with_sign(float magnitude, bool negative) {
  return negative ? -magnitude : magnitude;
}

SLUICE_HD constexpr float bf16_to_float(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

SLUICE_HD constexpr uint16_t float_to_bf16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > kFloatInfinityBits) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

SLUICE_HD constexpr float f16_to_float(uint16_t code) {
  uint32_t magnitude = code & 0x7fffu;
  float value = magnitude < 0x7c00
                    ? Half::decode(magnitude)
                    : std::bit_cast<float>(kFloatInfinityBits | (magnitude & 0x3ff) << 13);
  return with_sign(value, code >> 15);
}

SLUICE_HD constexpr uint16_t float_to_f16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  constexpr uint32_t kOverflow = 0x477ff000;  // 65520: halfway from 65504 to 2^16
  uint32_t code = bits > kFloatInfinityBits ? 0x7e00
                  : bits >= kOverflow       ? 0x7c00
                                            : Half::encode(bits);
  return static_cast<uint16_t>(sign | code);
}

SLUICE_HD constexpr float e4m3_to_float(uint8_t code) {
  uint32_t magnitude = code & 0x7fu;
  float value = magnitude == 0x7f ? std::bit_cast<float>(kFloatNanBits) : E4M3::decode(magnitude);
  return with_sign(value, code >> 7);
}

SLUICE_HD constexpr uint8_t float_to_e4m3(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t sign = bits >> 24 & 0x80;
  bits &= 0x7fffffff;
  uint32_t code = bits > kFloatInfinityBits                   ? 0x7f
                  : bits >= std::bit_cast<uint32_t>(kE4M3Max) ? 0x7e
                                                              : E4M3::encode(bits);
  return static_cast<uint8_t>(sign | code);
}

// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same with a sign.
SLUICE_HD constexpr float e2m1_to_float(uint32_t code) {
  const uint32_t magnitude = code & 7;
  const float value = magnitude < 2 ? 0.5f * static_cast<float>(magnitude)
                                    : static_cast<float>(2 + (magnitude & 1)) *
                                          static_cast<float>(1u << (magnitude >> 1)) / 4;
  return with_sign(value, code >> 3 & 1);
}

// A power of two, as scales of MX formats are; 255 is NaN.
SLUICE_HD constexpr float e8m0_to_float(uint8_t code) {
  constexpr uint32_t kLeast = 0x00400000;  // 2^-127, a subnormal number
  return std::bit_cast<float>(code == 0     ? kLeast
                              : code == 255 ? kFloatNanBits
                                            : static_cast<uint32_t>(code) << 23);
}

SLUICE_HD constexpr float e5m2_to_float(uint8_t code) {
  return f16_to_float(static_cast<uint16_t>(code << 8));  // E5M2 is the upper half of IEEE half
}

SLUICE_HD constexpr uint8_t float_to_e5m2(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t sign = bits >> 24 & 0x80;
  bits &= 0x7fffffff;
  uint32_t code = bits > kFloatInfinityBits                   ? 0x7f
                  : bits >= std::bit_cast<uint32_t>(kE5M2Max) ? 0x7b
                                                              : E5M2::encode(bits);
  return static_cast<uint8_t>(sign | code);
}

}  // namespace sluice
