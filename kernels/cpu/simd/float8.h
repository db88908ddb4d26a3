// E4M3 and E5M2 (quant/float8.h) on vectors: rounding, and exact conversions to wider types.
#pragma once

#include "kernels/cpu/simd/simd.h"
#include "src/base/dtype.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// A magnitude rounded to a format of fewer bits, ties to even: its value, and its code. Adding
// 2^(e + 23 - kMantissaBits), e the magnitude's exponent but at least that of the smallest normal
// number, rounds at the format's last digit; what the sum has above that power counts those digits.
template <int kMantissaBits, int kBias>
inline Vu minifloat_code(Vf magnitude, Vf& value) {
  constexpr uint32_t kShift = 23 - kMantissaBits;
  constexpr uint32_t kSmallestNormal = (128 - kBias) << 23;
  const Vi exponent = as_ints(magnitude) & static_cast<int32_t>(kInfinityBits);
  const Vi smallest = Vi{} + static_cast<int32_t>(kSmallestNormal);
  const auto at_least = reinterpret_cast<Vu>(exponent > smallest ? exponent : smallest);
  const Vu power = at_least + (kShift << 23);
  const Vf sum = magnitude + as_floats(power);
  value = sum - as_floats(power);
  return as_bits(sum) - power + ((at_least - kSmallestNormal) >> kShift);
}

// Without a table of values the product takes codes with an exponent too small by 120 (E4M3) or 112
// (E5M2; cells.h). These factors make up for it: x is packed too large by kXFactor, and sums are
// multiplied by sum_factor. Results differ only for x from 2^64 on, which no model has, and for
// sums below 2^-70.
#if defined(__AVX512VBMI__)
constexpr float kXFactor = 1;
constexpr float sum_factor(DType) { return 1; }
#else
constexpr float kXFactor = 0x1p64f;
constexpr float sum_factor(DType dtype) {
  return dtype == DType::f8_e4m3 ? 0x1p56f : dtype == DType::f8_e5m2 ? 0x1p48f : 1;
}
#endif

constexpr int16_t kE4M3InHalf = static_cast<int16_t>(0xbf80);  // where its bits go

// kLanes codes as halves in the low 16 bits of each lane. E5M2 is the upper half of an IEEE half;
// E4M3, put at its digits' place, has an exponent 8 too small, and NaN (all ones) gets an exponent
// of all ones.
#if defined(__AVX512F__)

template <DType kDtype>
inline Vf load_float8(const std::byte* from) {
  __m128i codes;
  std::memcpy(&codes, from, sizeof codes);
  const __m256i wide = _mm256_cvtepi8_epi16(codes);
  if constexpr (kDtype == DType::f8_e5m2) return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(kE4M3InHalf));
  const __m256i carry = _mm256_add_epi16(half, _mm256_set1_epi16(0x80));
  // half | (carry & 0x4000)
  const __m256i all = _mm256_ternarylogic_epi32(half, carry, _mm256_set1_epi16(0x4000), 0xf8);
  return _mm512_cvtph_ps(all) * 256.0f;
}

#elif defined(__AVX2__)

template <DType kDtype>
inline Vf load_float8(const std::byte* from) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  if constexpr (kDtype == DType::f8_e5m2) return _mm256_cvtph_ps(_mm_slli_epi16(wide, 8));
  const __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(kE4M3InHalf));
  const __m128i carry = _mm_add_epi16(half, _mm_set1_epi16(0x80));
  const __m128i all = _mm_or_si128(half, _mm_and_si128(carry, _mm_set1_epi16(0x4000)));
  return _mm256_cvtph_ps(all) * 256.0f;
}

#else

template <DType kDtype>
inline Vf load_float8(const std::byte* from) {
  Vu codes;
  for (int64_t i = 0; i < kLanes; ++i)
    codes[i] = static_cast<uint32_t>(static_cast<int8_t>(from[i]));
  if constexpr (kDtype == DType::f8_e5m2) return f16_to_float(codes << 8 & 0xffff);
  const Vu half = codes << 7 & static_cast<uint16_t>(kE4M3InHalf);
  return f16_to_float(half | ((half + 0x80) & 0x4000)) * 256.0f;
}

#endif

#if defined(__AVX512VBMI__)

// The bf16 number of every magnitude of a type, as two tables of bytes.
struct Bf16OfFloat8 {
  uint8_t low[128];
  uint8_t high[128];
};
template <int kMantissaBits, int kBias>
constexpr Bf16OfFloat8 make_bf16_of_float8(int infinity, int nan) {  // codes; NaN from there on
  Bf16OfFloat8 table{};
  constexpr int kOne = 1 << kMantissaBits;
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> kMantissaBits, mantissa = code & (kOne - 1);
    if (exponent == 0 && mantissa != 0) {  // subnormal: normalised
      exponent = 1;
      while (mantissa < kOne) {
        mantissa *= 2;
        --exponent;
      }
      mantissa -= kOne;
    } else if (exponent == 0) {
      exponent = kBias - 127;
    }
    int bits = (exponent + 127 - kBias) << 7 | mantissa << (7 - kMantissaBits);
    if (code == infinity) bits = 0x7f80;
    if (code >= nan) bits = 0x7fc0;
    table.low[code] = static_cast<uint8_t>(bits & 0xff);
    table.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}
alignas(64) constexpr Bf16OfFloat8 kBf16OfE4M3 = make_bf16_of_float8<3, 7>(128, 0x7f);
alignas(64) constexpr Bf16OfFloat8 kBf16OfE5M2 = make_bf16_of_float8<2, 15>(0x7c, 0x7d);

template <DType kDtype>
struct Float8Tables {
  Float8Tables() : Float8Tables(kDtype == DType::f8_e4m3 ? kBf16OfE4M3 : kBf16OfE5M2) {}
  explicit Float8Tables(const Bf16OfFloat8& table)
      : low0(_mm512_load_si512(table.low)),
        low1(_mm512_load_si512(table.low + 64)),
        high0(_mm512_load_si512(table.high)),
        high1(_mm512_load_si512(table.high + 64)) {}

  // Returns the first (0) or the last (1) eight of each 16 codes as bf16 numbers.
  template <int kHalf>
  __m512i half(__m512i codes) const {
    asm("" : SLUICE_VECTOR(codes));  // lest GCC loads them for each of three uses
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    const __m512i magnitude = _mm512_permutex2var_epi8(high0, codes, high1);
    // magnitude | (codes & 0x80)
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);
    return kHalf == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
  }

  __m512i low0, low1, high0, high1;
};

// Codes [0, 32) and [32, 64) as bf16 numbers, from all 64.
template <DType kDtype>
inline void float8_to_bf16(const Float8Tables<kDtype>& tables, __m512i codes, __m512i (&to)[2]) {
  const __m512i eights = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // as the halves take them
  const __m512i ordered = _mm512_permutexvar_epi64(eights, codes);
  to[0] = tables.template half<0>(ordered);
  to[1] = tables.template half<1>(ordered);
}

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
