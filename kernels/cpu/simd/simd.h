// Vectors of the instruction set that this translation unit is compiled for: 16, 8 or 4 floats.
// Everything has internal linkage (kernels/cpu/ops.h says why). Arithmetic is GCC's and Clang's
// vector extension, so the portable kind compiles for any CPU; only what that cannot say is an
// intrinsic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sluice::cpu::SLUICE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif

// Constraint for a vector that asm reads and writes.
#if defined(SLUICE_EMULATED_VECTORS) || !defined(__x86_64__)
#define SLUICE_VECTOR "+m"
#else
#define SLUICE_VECTOR "+v"
#endif

using Vf [[gnu::vector_size(4 * kLanes)]] = float;
using Vi [[gnu::vector_size(4 * kLanes)]] = int32_t;
using Vu [[gnu::vector_size(4 * kLanes)]] = uint32_t;

constexpr uint32_t kInfinityBits = 0x7f800000;

inline float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline Vf as_floats(Vu v) { return reinterpret_cast<Vf>(v); }
inline Vu as_bits(Vf v) { return reinterpret_cast<Vu>(v); }
inline Vi as_ints(Vf v) { return reinterpret_cast<Vi>(v); }

inline Vf splat(float x) { return Vf{} + x; }

inline Vf load(const void* p) {
  Vf v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vu load_bits(const void* p) {
  Vu v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

// `count` <= 16 words, without a call.
inline void copy_words(void* to, const void* from, int64_t count) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  for (; count >= 4; count -= 4, out += 16, in += 16) std::memcpy(out, in, 16);
  if (count & 2) {
    std::memcpy(out, in, 8);
    out += 8;
    in += 8;
  }
  if (count & 1) std::memcpy(out, in, 4);
}

// The first `count` <= kLanes floats, and `fill` behind them.
inline Vf load_some(const float* p, int64_t count, float fill) {
  Vf v = splat(fill);
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
inline void store_some(float* p, Vf v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// kLanes 16-bit elements, each in the low half of a lane.
inline Vu load_u16(const std::byte* from) {
#if defined(__AVX512F__)
  __m256i codes;
  std::memcpy(&codes, from, sizeof codes);
  return reinterpret_cast<Vu>(_mm512_cvtepu16_epi32(codes));
#elif defined(__AVX2__)
  __m128i codes;
  std::memcpy(&codes, from, sizeof codes);
  return reinterpret_cast<Vu>(_mm256_cvtepu16_epi32(codes));
#else
  uint16_t codes[kLanes];
  std::memcpy(codes, from, sizeof codes);
  Vu lanes;
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = codes[i];
  return lanes;
#endif
}
// kLanes bytes, each in a lane.
inline Vu load_u8(const std::byte* from) {
#if defined(__AVX512F__)
  __m128i bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return reinterpret_cast<Vu>(_mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  return reinterpret_cast<Vu>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  uint8_t bytes[kLanes];
  std::memcpy(bytes, from, sizeof bytes);
  Vu lanes{};
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = bytes[i];
  return lanes;
#endif
}
inline Vf load_bf16(const std::byte* from) { return as_floats(load_u16(from) << 16); }

inline Vf fma(Vf a, Vf b, Vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Every other lane of a and then of b, from the first or from the second.
inline Vf even_lanes(Vf a, Vf b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
}
inline Vf odd_lanes(Vf a, Vf b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

inline Vf max(Vf a, Vf b) {  // b where either is NaN
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline Vf min(Vf a, Vf b) {  // b where either is NaN
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr int32_t kRounderBits = 0x4b400000;

// Codes of int8 and, in `value`, what they mean, in scales.
inline Vi i8_codes(Vf x, Vf scale, Vf& value) {
  const Vf rounded = max(splat(-127), min(x / scale, splat(127))) + kRounder;
  value = rounded - kRounder;
  return as_ints(rounded) - kRounderBits;
}

// Sum and maximum of the lanes, by halves.
inline float sum(Vf v) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}
inline float max(Vf v) {
  float top = v[0];
  for (int64_t i = 1; i < kLanes; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// Lanes of all ones where a < b; a has its sign bit clear.
inline Vu below(Vu a, uint32_t b) {
  return reinterpret_cast<Vu>(reinterpret_cast<Vi>(a) < static_cast<int32_t>(b));
}
inline Vu select(Vu mask, Vu yes, Vu no) { return (mask & yes) | (~mask & no); }

// e^x within 2 ulp; 0 below about -104, infinity above 88.72; NaN stays. Reduction to |r| <= ln2/2
// and Cephes' polynomial for single precision; 2^n is applied in two steps to reach subnormals.
inline Vf exp(Vf x) {
  x = max(splat(-105.0f), x);
  x = min(splat(90.0f), x);
  const Vf shifted = fma(x, splat(1.44269504088896341f), splat(kRounder));
  const Vf n = shifted - kRounder;
  Vf r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  const Vi exponent = as_ints(shifted) - kRounderBits;
  const Vi half = exponent >> 1;
  const Vf low = reinterpret_cast<Vf>((half + 127) << 23);
  const Vf high = reinterpret_cast<Vf>((exponent - half + 127) << 23);
  return p * low * high;
}

// Round to bf16 (nearest, ties to even; NaN stays NaN), in the upper half of each lane.
inline Vu round_to_bf16(Vf x) {
  const Vu bits = as_bits(x);
  const Vu rounded = bits + 0x7fff + (bits >> 16 & 1);
  const Vu quiet = bits | 0x400000;
  return select(below(bits & 0x7fffffff, kInfinityBits + 1), rounded, quiet) & 0xffff0000;
}

// IEEE halves in the low 16 bits of each lane.
inline Vf f16_to_float(Vu halves) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(halves)));
#elif defined(__AVX2__)
  const __m256i low = _mm256_shuffle_epi8(
      reinterpret_cast<__m256i>(halves),
      _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,  //
                       0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
  return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(low, 0b1000)));
#else
  // A float with the same digits has an exponent too small by 112; 31 means infinity or NaN.
  const Vu magnitude = (halves & 0x7fff) << 13;
  const Vu scaled = as_bits(as_floats(magnitude) * 0x1p112f);
  const Vu special = ~below(magnitude, 0x7c00 << 13) & kInfinityBits;
  return as_floats(scaled | special | (halves & 0x8000) << 16);
#endif
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
