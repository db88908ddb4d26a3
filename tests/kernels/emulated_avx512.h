// The AVX-512 instructions that kernels/cpu uses, in plain C++, so that its AVX-512 code is tested
// on any machine with AVX2. Sources that are compiled as emulated_avx512
// (tests/kernels/CMakeLists.txt) include it before everything else. Intel's SDM, volume 2, defines
// each instruction.
//
// No inline function of another header may be used here (kernels/cpu/ops.h).
#pragma once
#pragma GCC system_header  // redefines what <immintrin.h> may have as macros

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define SLUICE_EMULATED_VECTORS 1  // kernels/cpu/simd/simd.h
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#define __AVX512DQ__ 1
#define __AVX512BF16__ 1
#define __AVX512VBMI__ 1
#define __AVX512VNNI__ 1

namespace {
namespace emulated512 {

// The elements of a register. `Of` and `to` keep the bits.
template <class T>
struct Lanes {
  static constexpr int kCount = 64 / sizeof(T);
  T at[kCount];

  template <class V>
  static Lanes of(V v) {
    static_assert(sizeof v == 64);
    return __builtin_bit_cast(Lanes, v);
  }
  template <class V = __m512i>
  V to() const {
    return __builtin_bit_cast(V, *this);
  }
};
using Part = __m128i;  // a quarter
template <class T>
constexpr int kPerPart = 16 / sizeof(T);

inline __m512i load(const void* from) {
  __m512i v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(void* to, __m512i v) { std::memcpy(to, &v, sizeof v); }
inline __m512i load_some(unsigned mask, const void* from) {
  Lanes<uint64_t> v = {};
  for (int i = 0; i < 8; ++i) {
    if (mask >> i & 1) std::memcpy(&v.at[i], static_cast<const char*>(from) + 8 * i, 8);
  }
  return v.to();
}

inline __m512i splat8(char c) {
  Lanes<char> v;
  for (char& lane : v.at) lane = c;
  return v.to();
}
inline __m512i list64(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g,
                      int64_t h) {
  return Lanes<int64_t>{{a, b, c, d, e, f, g, h}}.to();
}
__m512i splat_part(Part part) {
  Lanes<Part> v;
  for (Part& lane : v.at) lane = part;
  return v.to();
}
inline __m512i zero_extend(__m256i low) {
  __m512i v = {};
  std::memcpy(&v, &low, sizeof low);
  return v;
}
inline __m256 half(__m512 v, int i) { return Lanes<__m256>::of(v).at[i]; }

// Moves of elements.

template <class T, bool kHigh>
__m512i interleave(__m512i first, __m512i second) {
  const auto a = Lanes<T>::of(first), b = Lanes<T>::of(second);
  Lanes<T> v;
  for (int i = 0; i < v.kCount; ++i) {
    const int in_part = i % kPerPart<T>;
    const int from = i - in_part + in_part / 2 + (kHigh ? kPerPart<T> / 2 : 0);
    v.at[i] = (i % 2 == 0 ? a : b).at[from];
  }
  return v.to();
}
template <class T>
__m512i choose(__m512i first, __m512i index, __m512i second) {
  const auto a = Lanes<T>::of(first), from = Lanes<T>::of(index), b = Lanes<T>::of(second);
  Lanes<T> v;
  for (int i = 0; i < v.kCount; ++i)
    v.at[i] = (from.at[i] & v.kCount ? b : a).at[from.at[i] & (v.kCount - 1)];
  return v.to();
}
inline __m512i choose64(__m512i index, __m512i a) { return choose<uint64_t>(a, index, a); }
inline __m512i choose16(__m512i index, __m512i a) { return choose<uint16_t>(a, index, a); }
inline __m512 choose_floats(__m512i index, __m512 a) {
  const auto bits = reinterpret_cast<__m512i>(a);
  return reinterpret_cast<__m512>(choose<uint32_t>(bits, index, bits));
}
__m512i choose_parts(__m512i first, __m512i second, int from) {
  const auto a = Lanes<Part>::of(first), b = Lanes<Part>::of(second);
  return Lanes<Part>{
      {a.at[from & 3], a.at[from >> 2 & 3], b.at[from >> 4 & 3], b.at[from >> 6 & 3]}}
      .to();
}
__m512i choose32_in_parts(__m512i from, int index) {
  const auto a = Lanes<uint32_t>::of(from);
  Lanes<uint32_t> v;
  for (int i = 0; i < v.kCount; ++i) v.at[i] = a.at[i / 4 * 4 + (index >> 2 * (i % 4) & 3)];
  return v.to();
}
__m512i choose8_in_parts(__m512i from, __m512i indices) {
  const auto a = Lanes<uint8_t>::of(from), index = Lanes<uint8_t>::of(indices);
  Lanes<uint8_t> v;
  for (int i = 0; i < v.kCount; ++i)
    v.at[i] = index.at[i] & 0x80 ? 0 : a.at[i / 16 * 16 + (index.at[i] & 15)];
  return v.to();
}
// Bit k of `truth` is the result where a, b and c have the bits of k.
template <class V>
V look_up_bits(V a, V b, V c, int truth) {
  V v = {};
  for (int k = 0; k < 8; ++k) {
    if (truth >> k & 1) v |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return v;
}

// Arithmetic.

__m512 fma(__m512 first, __m512 second, __m512 third) {
  const auto a = Lanes<__m256>::of(first), b = Lanes<__m256>::of(second);
  const auto c = Lanes<__m256>::of(third);
  return Lanes<__m256>{
      {_mm256_fmadd_ps(a.at[0], b.at[0], c.at[0]), _mm256_fmadd_ps(a.at[1], b.at[1], c.at[1])}}
      .to<__m512>();
}
__m512d fma(__m512d first, __m512d second, __m512d third) {
  const auto a = Lanes<__m256d>::of(first), b = Lanes<__m256d>::of(second);
  const auto c = Lanes<__m256d>::of(third);
  return Lanes<__m256d>{
      {_mm256_fmadd_pd(a.at[0], b.at[0], c.at[0]), _mm256_fmadd_pd(a.at[1], b.at[1], c.at[1])}}
      .to<__m512d>();
}
__m512 max(__m512 first, __m512 second) {
  const auto a = Lanes<__m256>::of(first), b = Lanes<__m256>::of(second);
  return Lanes<__m256>{{_mm256_max_ps(a.at[0], b.at[0]), _mm256_max_ps(a.at[1], b.at[1])}}
      .to<__m512>();
}
__m512 min(__m512 first, __m512 second) {
  const auto a = Lanes<__m256>::of(first), b = Lanes<__m256>::of(second);
  return Lanes<__m256>{{_mm256_min_ps(a.at[0], b.at[0]), _mm256_min_ps(a.at[1], b.at[1])}}
      .to<__m512>();
}

inline float flushed(float x) {  // DAZ and FTZ
  const auto bits = __builtin_bit_cast(uint32_t, x);
  return (bits & 0x7f800000) == 0 ? __builtin_bit_cast(float, bits & 0x80000000) : x;
}
inline float from_bf16(uint16_t code) {
  return flushed(__builtin_bit_cast(float, uint32_t{code} << 16));
}
inline uint16_t to_bf16(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, flushed(x));
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class Codes>
__m512 add_bf16_products(__m512 sums, Codes first, Codes second) {
  auto v = Lanes<float>::of(sums);
  const auto a = Lanes<uint16_t>::of(first), b = Lanes<uint16_t>::of(second);
  for (int i = 0; i < v.kCount; ++i) {
    for (int k = 2 * i + 1; k >= 2 * i; --k) {
      const float product_and_sum =
          __builtin_fmaf(from_bf16(a.at[k]), from_bf16(b.at[k]), flushed(v.at[i]));
      v.at[i] = flushed(product_and_sum);
    }
  }
  return v.to<__m512>();
}
__m512i add_u8_i8_products(__m512i sums, __m512i bytes, __m512i codes) {
  auto v = Lanes<uint32_t>::of(sums);
  const auto a = Lanes<uint8_t>::of(bytes);
  const auto b = Lanes<int8_t>::of(codes);
  for (int i = 0; i < 64; ++i) v.at[i / 4] += static_cast<uint32_t>(a.at[i] * b.at[i]);
  return v.to();
}

__m512i add_i16_products(__m512i sums, __m512i first, __m512i second) {
  auto v = Lanes<uint32_t>::of(sums);
  const auto a = Lanes<int16_t>::of(first), b = Lanes<int16_t>::of(second);
  for (int i = 0; i < 32; ++i) v.at[i / 2] += static_cast<uint32_t>(a.at[i] * b.at[i]);
  return v.to();
}

// Conversions.

__m512bh floats_to_bf16(__m512 high, __m512 low) {
  const auto a = Lanes<float>::of(low), b = Lanes<float>::of(high);
  Lanes<uint16_t> v;
  for (int i = 0; i < 16; ++i) {
    v.at[i] = to_bf16(a.at[i]);
    v.at[16 + i] = to_bf16(b.at[i]);
  }
  return v.to<__m512bh>();
}
__m512 halves_to_floats(__m256i halves) {
  return Lanes<__m256>{{_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                        _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}}
      .to<__m512>();
}
inline __m512d floats_to_doubles(__m256 floats) {
  return Lanes<__m256d>{{_mm256_cvtps_pd(_mm256_castps256_ps128(floats)),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1))}}
      .to<__m512d>();
}
__m512i widen_u16(__m256i codes) {
  uint16_t from[16];
  std::memcpy(from, &codes, sizeof from);
  Lanes<uint32_t> v;
  for (int i = 0; i < 16; ++i) v.at[i] = from[i];
  return v.to();
}
__m512i widen_u8(__m128i codes) {
  uint8_t from[16];
  std::memcpy(from, &codes, sizeof from);
  Lanes<uint32_t> v;
  for (int i = 0; i < 16; ++i) v.at[i] = from[i];
  return v.to();
}
template <class T, class Result>
Result narrow(__m512i words) {
  const auto a = Lanes<uint32_t>::of(words);
  T to[16];
  for (int i = 0; i < 16; ++i) to[i] = static_cast<T>(a.at[i]);
  return __builtin_bit_cast(Result, to);
}

}  // namespace emulated512
}  // namespace

#define _mm512_load_si512 emulated512::load
#define _mm512_loadu_si512 emulated512::load
#define _mm512_maskz_loadu_epi64 emulated512::load_some
#define _mm512_storeu_si512 emulated512::store
#define _mm512_store_si512 emulated512::store
#define _mm512_stream_si512 emulated512::store
#define _mm512_set1_epi8 emulated512::splat8
#define _mm512_setr_epi64 emulated512::list64
#define _mm512_broadcast_i32x4 emulated512::splat_part
#define _mm512_zextsi256_si512 emulated512::zero_extend
#define _mm512_castps512_ps256(v) emulated512::half(v, 0)
#define _mm512_extractf32x8_ps emulated512::half
#define _mm512_unpacklo_epi8 emulated512::interleave<uint8_t, false>
#define _mm512_unpackhi_epi8 emulated512::interleave<uint8_t, true>
#define _mm512_unpacklo_epi32 emulated512::interleave<uint32_t, false>
#define _mm512_unpackhi_epi32 emulated512::interleave<uint32_t, true>
#define _mm512_unpacklo_epi64 emulated512::interleave<uint64_t, false>
#define _mm512_unpackhi_epi64 emulated512::interleave<uint64_t, true>
#define _mm512_permutex2var_epi8 emulated512::choose<uint8_t>
#define _mm512_permutex2var_epi16 emulated512::choose<uint16_t>
#define _mm512_permutexvar_epi64 emulated512::choose64
#define _mm512_permutexvar_epi16 emulated512::choose16
#define _mm512_permutexvar_ps emulated512::choose_floats
#define _mm512_shuffle_i32x4 emulated512::choose_parts
#define _mm512_shuffle_epi32 emulated512::choose32_in_parts
#define _mm512_shuffle_epi8 emulated512::choose8_in_parts
#define _mm512_ternarylogic_epi32 emulated512::look_up_bits
#define _mm256_ternarylogic_epi32 emulated512::look_up_bits
#define _mm512_fmadd_ps emulated512::fma
#define _mm512_fmadd_pd emulated512::fma
#define _mm512_max_ps emulated512::max
#define _mm512_min_ps emulated512::min
#define _mm512_dpbf16_ps emulated512::add_bf16_products
#define _mm512_dpbusd_epi32 emulated512::add_u8_i8_products
#define _mm512_dpwssd_epi32 emulated512::add_i16_products
#define _mm512_cvtne2ps_pbh emulated512::floats_to_bf16
#define _mm512_cvtph_ps emulated512::halves_to_floats
#define _mm512_cvtps_pd emulated512::floats_to_doubles
#define _mm512_cvtepu16_epi32 emulated512::widen_u16
#define _mm512_cvtepu8_epi32 emulated512::widen_u8
#define _mm512_cvtepi32_epi8 emulated512::narrow<uint8_t, __m128i>
#define _mm512_cvtepi32_epi16 emulated512::narrow<uint16_t, __m256i>
