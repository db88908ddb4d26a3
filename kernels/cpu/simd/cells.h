// Turns stored cells (quant/format.h) into operands of the product: float32, bf16 pairs, or bytes.
// All conversions are exact. A cell is taken in vectors of kLanes rows; Raw is one such vector as
// stored, operand<u> what it holds for unit u of its kUnits; unit() takes 32 bits of x, in all
// lanes.
#pragma once

#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;                            // bytes
constexpr int kVectors = static_cast<int>(16 / kLanes);  // of a cell

// Cells whose operands are always right.
template <class Cells>
struct AlwaysExact {
  using Exact = Cells;
  static void look_at(Vu) {}
  static void look_at(Vf) {}
  static bool must_be_exact() { return false; }
};

struct F32Unit {
  static constexpr bool kIntegers = false;
  using Operand = Vf;
  using Sum = Vf;
  static Operand unit(Vu x) { return as_floats(x); }
  static Vf multiply_add(Vf sum, Operand x, Operand w) { return fma(x, w, sum); }
};

struct F32Cells : F32Unit, AlwaysExact<F32Cells> {
  static constexpr int kUnits = 1;
  using Raw = Vf;
  template <int>
  Vf operand(Raw raw) const {
    return raw;
  }
};

// Pairs (k, k + 1) in each 32-bit lane.
struct Bf16ToF32 : F32Unit, AlwaysExact<Bf16ToF32> {
  static constexpr int kUnits = 2;
  using Raw = Vu;
  template <int kUnit>
  Vf operand(Raw raw) const {
    return as_floats(kUnit == 0 ? raw << 16 : raw & 0xffff0000);
  }
};

struct F16ToF32 : F32Unit, AlwaysExact<F16ToF32> {
  static constexpr int kUnits = 2;
  using Raw = Vu;
  template <int kUnit>
  Vf operand(Raw raw) const {
    return f16_to_float(kUnit == 0 ? raw & 0xffff : raw >> 16);
  }
};

#if defined(__AVX512VBMI__)

template <DType kDtype>
struct Float8ToF32 : F32Unit, AlwaysExact<Float8ToF32<kDtype>> {
  static constexpr int kUnits = 4;
  using Raw = Vu;
  Float8Tables<kDtype> tables;
  template <int kUnit>
  Vf operand(Raw raw) const {
    const __m512i pairs = tables.template half<kUnit / 2>(reinterpret_cast<__m512i>(raw));
    return Bf16ToF32().operand<kUnit % 2>(reinterpret_cast<Vu>(pairs));
  }
};

#else

// 16 bytes hold (k, k + 1) of four rows, then (k + 2, k + 3): the upper bytes of halves.
template <int kPair>
inline Vu upper_bytes(Vu raw) {
#if defined(__AVX2__)
  const __m256i zero = _mm256_setzero_si256(), codes = reinterpret_cast<__m256i>(raw);
  return reinterpret_cast<Vu>(kPair == 0 ? _mm256_unpacklo_epi8(zero, codes)
                                         : _mm256_unpackhi_epi8(zero, codes));
#else
  using Bytes [[gnu::vector_size(16)]] = int8_t;
  const Bytes zero{}, codes = reinterpret_cast<Bytes>(raw);
  return reinterpret_cast<Vu>(kPair == 0
                                  ? __builtin_shufflevector(zero, codes, 0, 16, 1, 17, 2, 18, 3, 19,
                                                            4, 20, 5, 21, 6, 22, 7, 23)
                                  : __builtin_shufflevector(zero, codes, 8, 24, 9, 25, 10, 26, 11,
                                                            27, 12, 28, 13, 29, 14, 30, 15, 31));
#endif
}

// Codes in bf16's places: sign, exponent and mantissa. Their exponents are too small, also those of
// subnormal codes (kXFactor, sum_factor).
// Codes that mean NaN or infinity would be numbers: where any was seen, Exact is to be taken
// instead.
template <DType kDtype, bool kExact = false>
struct Float8ToF32 : F32Unit {
  static constexpr int kUnits = 4;
  static constexpr bool kE4M3 = kDtype == DType::f8_e4m3;
  static constexpr int kShift = kE4M3 ? 4 : 3;  // from the upper byte
  static constexpr auto kPlaces = static_cast<int16_t>(kE4M3 ? 0x87f0 : 0x8fe0);
  static constexpr int16_t kSpecial = kE4M3 ? 0x07f0 : 0x0f80;  // magnitudes from here on
  using Raw = Vu;
  using Exact = Float8ToF32<kDtype, true>;
  using Halves [[gnu::vector_size(4 * kLanes)]] = int16_t;
  using Bytes [[gnu::vector_size(4 * kLanes)]] = uint8_t;
  Bytes largest{};

  void look_at(Vu raw) {
    if constexpr (kExact) return;
    const auto codes = reinterpret_cast<Bytes>(raw) | 0x80;
    largest = codes > largest ? codes : largest;
  }
  bool must_be_exact() const {
    if constexpr (kExact) return false;
    const auto special = reinterpret_cast<Vu>(largest >= uint8_t{kE4M3 ? 0xff : 0xfc});
    uint32_t any = 0;
    for (int64_t i = 0; i < kLanes; ++i) any |= special[i];
    return any != 0;
  }
  // Codes (0, 1) or (2, 3) of each row.
  template <int kPair>
  static Vu pairs(Vu raw) {
    const Halves placed = (reinterpret_cast<Halves>(upper_bytes<kPair>(raw)) >> kShift) & kPlaces;
    if constexpr (!kExact) return reinterpret_cast<Vu>(placed);
    const Halves special = (placed & kSpecial) == kSpecial;
    return reinterpret_cast<Vu>(placed | (special & static_cast<int16_t>(kE4M3 ? 0x7ff0 : 0x7f80)));
  }
  template <int kUnit>
  Vf operand(Raw raw) const {
    return Bf16ToF32().operand<kUnit % 2>(pairs<kUnit / 2>(raw));
  }
};

// Decodes codes to bf16 pairs; these are not operands of the product.
template <DType kDtype>
struct Float8ToBf16 {
  static constexpr int kUnits = 2;
  using Raw = Vu;
  template <int kPair>
  Vu operand(Raw raw) const {
    return Float8ToF32<kDtype, true>::template pairs<kPair>(raw);
  }
};

#endif

#if defined(__AVX512BF16__)

struct Bf16Unit {
  static constexpr bool kIntegers = false;
  using Operand = __m512bh;
  using Sum = Vf;
  static Operand unit(Vu x) { return reinterpret_cast<__m512bh>(x); }
  static Vf multiply_add(Vf sum, Operand x, Operand w) { return _mm512_dpbf16_ps(sum, w, x); }
};

struct Bf16Pairs : Bf16Unit, AlwaysExact<Bf16Pairs> {
  static constexpr int kUnits = 1;
  using Raw = Vu;
  template <int>
  Operand operand(Raw raw) const {
    return reinterpret_cast<__m512bh>(raw);
  }
};

// A cell of codes has pairs (0, 1) of four rows, then their pairs (2, 3), and so on.
template <DType kDtype>
struct Float8ToBf16 : Bf16Unit, AlwaysExact<Float8ToBf16<kDtype>> {
  static constexpr int kUnits = 2;
  using Raw = Vu;
  Float8Tables<kDtype> tables;
  template <int kUnit>
  Operand operand(Raw raw) const {
    return reinterpret_cast<__m512bh>(tables.template half<kUnit>(reinterpret_cast<__m512i>(raw)));
  }
};

#endif

// Four codes + 128 in each 32-bit lane. All sums are exact.
struct I8Unit {
  static constexpr bool kIntegers = true;
  using Raw = Vu;
  using Sum = Vu;  // modulo 2^32, which the sum of the codes themselves fits
};

#if defined(__AVX512VNNI__)

struct I8Cells : I8Unit, AlwaysExact<I8Cells> {  // four codes of x in a unit
  static constexpr int kUnits = 1;
  using Operand = __m512i;
  template <int>
  Operand operand(Raw raw) const {
    return reinterpret_cast<__m512i>(raw);
  }
  static Operand unit(Vu x) { return reinterpret_cast<__m512i>(x); }
  static Vu multiply_add(Vu sum, Operand x, Operand w) {
    return reinterpret_cast<Vu>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), w, x));
  }
};

#elif defined(__AVX2__)

struct I8Cells : I8Unit, AlwaysExact<I8Cells> {  // Units::i16_pairs
  static constexpr int kUnits = 2;
  using Operand = __m256i;
  template <int kUnit>
  Operand operand(Raw raw) const {
    const auto codes = reinterpret_cast<__m256i>(raw);
    return kUnit == 0 ? _mm256_and_si256(codes, _mm256_set1_epi16(0xff))
                      : _mm256_srli_epi16(codes, 8);
  }
  static Operand unit(Vu x) { return reinterpret_cast<__m256i>(x); }
  static Vu multiply_add(Vu sum, Operand x, Operand w) {
    sum += reinterpret_cast<Vu>(_mm256_madd_epi16(x, w));
    asm("" : SLUICE_VECTOR(sum));  // lest GCC adds products first, and has no registers for them
    return sum;
  }
};

#else

struct I8Cells : I8Unit, AlwaysExact<I8Cells> {
  static constexpr int kUnits = 1;
  using Operand = Vi;
  template <int>
  Operand operand(Raw raw) const {
    return reinterpret_cast<Vi>(raw);
  }
  static Operand unit(Vu x) { return reinterpret_cast<Vi>(x); }
  static Vu multiply_add(Vu sum, Operand x, Operand w) {
    for (int byte = 0; byte < 4; ++byte) {
      const Vi product = ((x << (24 - 8 * byte)) >> 24) * ((w >> (8 * byte)) & 0xff);
      sum += reinterpret_cast<Vu>(product);
    }
    return sum;
  }
};

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
