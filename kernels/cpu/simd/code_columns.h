// Codes of four bits of a panel, of eight columns at a time: column by column, of which each has
// eight bytes with a code of every output, or as lines of runs (quant/groups.h): 16 words, of an
// output each.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The places of the outputs' codes in a column: of eight of them in four bytes, from bits[i] on.
struct CodePlaces {
  Vu of[kPanelRows / kLanes];

  explicit CodePlaces(const uint32_t (&bits)[kPanelRows]) {
    for (int64_t part = 0; part < kPanelRows / kLanes; ++part) {
      const Vu place = load_bits(bits + part * kLanes) >> 2;
#if defined(__AVX512F__)  // of bytes behind pair_halves()
      constexpr Vu kSecond{0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
      of[part] = (place % 2 * 32 + place / 2 + kSecond) * 0x01010101 + 0x18081000;
#elif defined(__AVX2__)  // of words
      of[part] = place % 2 * 4 + place / 2;
#else
      of[part] = place + static_cast<uint32_t>(part * kLanes / 8 * 8);
#endif
    }
  }
};

#if defined(__AVX512F__)

// The lower halves of the bytes of `a` and of `b` become one byte, and behind these their upper
// halves. Both are 32 bytes that are there twice.
inline __m512i pair_halves(Vu a, Vu b) {
  constexpr Vu kFour{0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
  return reinterpret_cast<__m512i>(select(Vu{} + 0x0f0f0f0f, a >> kFour, b << (4 - kFour)));
}

// Columns into a line of a run (quant/groups.h).
inline void columns_to_line(const std::byte* columns, const CodePlaces& places, uint32_t* line) {
  const Vu v = load_bits(columns);
  const __m512i pairs = pair_halves(
      __builtin_shufflevector(v, v, 0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11),
      __builtin_shufflevector(v, v, 4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15));
  store(line, _mm512_permutex2var_epi8(pairs, reinterpret_cast<__m512i>(places.of[0]), pairs));
}

// A line of a run into columns, which have the codes of outputs in order.
inline void line_to_columns(const uint32_t* line, std::byte* columns) {
  const Vu v = load_bits(line);
  const __m512i pairs = pair_halves(
      __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14),
      __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15));
  constexpr Vu kLane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vu bytes =
      (kLane % 2 * 16 + kLane / 2 % 2 * 2 + kLane / 4 % 2 * 32 + kLane / 8) * 0x01010101 +
      0x0c080400;
  store(columns, _mm512_permutex2var_epi8(pairs, reinterpret_cast<__m512i>(bytes), pairs));
}

#elif defined(__AVX2__)

// The lower halves of the bytes of `a` and of `b` become one byte, and so do their upper halves;
// the first 16 bytes of both lie together, and the others.
struct PairedHalves {
  __m256i first, second;

  PairedHalves(Vu a, Vu b) {
    const Vu lower = Vu{} + 0x0f0f0f0f;
    const auto low = reinterpret_cast<__m256i>(select(lower, a, b << 4));
    const auto high = reinterpret_cast<__m256i>(select(lower, a >> 4, b));
    first = _mm256_permute2x128_si256(low, high, 0x20);
    second = _mm256_permute2x128_si256(low, high, 0x31);
  }
};

inline void columns_to_line(const std::byte* columns, const CodePlaces& places, uint32_t* line) {
  const Vu v = load_bits(columns), w = load_bits(columns + 32);
  const PairedHalves pairs(__builtin_shufflevector(v, w, 0, 1, 2, 3, 8, 9, 10, 11),
                           __builtin_shufflevector(v, w, 4, 5, 6, 7, 12, 13, 14, 15));
  const __m256i a = _mm256_unpacklo_epi8(pairs.first, pairs.second);
  const __m256i b = _mm256_unpackhi_epi8(pairs.first, pairs.second);
  const __m256i words[] = {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
  for (int i = 0; i < 2; ++i) {
    const auto order = reinterpret_cast<__m256i>(places.of[i]);
    store(line + i * kLanes, _mm256_permutevar8x32_epi32(words[i], order));
  }
}

inline void line_to_columns(const uint32_t* line, std::byte* columns) {
  const Vu v = load_bits(line), w = load_bits(line + kLanes);
  const PairedHalves pairs(__builtin_shufflevector(v, w, 0, 2, 8, 10, 4, 6, 12, 14),
                           __builtin_shufflevector(v, w, 1, 3, 9, 11, 5, 7, 13, 15));
  const __m256i by_column = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
  const __m256i a = _mm256_shuffle_epi8(pairs.first, by_column);
  const __m256i b = _mm256_shuffle_epi8(pairs.second, by_column);
  store(columns, _mm256_unpacklo_epi16(a, b));
  store(columns + 32, _mm256_unpackhi_epi16(a, b));
}

#else

inline void columns_to_line(const std::byte* columns, const CodePlaces& places, uint32_t* line) {
  for (int64_t i = 0; i < kPanelRows; ++i) {
    const uint32_t place = places.of[i / kLanes][i % kLanes];
    line[i] = 0;
    for (int c = 0; c < 8; ++c) {
      const auto pair = static_cast<uint32_t>(columns[c * 8 + place / 2]);
      line[i] |= (pair >> place % 2 * 4 & 15) << (c % 2 * 16 + c / 2 * 4);
    }
  }
}

inline void line_to_columns(const uint32_t* line, std::byte* columns) {
  for (int c = 0; c < 8; ++c) {
    const int place = c % 2 * 16 + c / 2 * 4;
    for (int j = 0; j < 8; ++j)
      columns[c * 8 + j] = static_cast<std::byte>((line[2 * j] >> place & 15) |
                                                  (line[2 * j + 1] >> place & 15) << 4);
  }
}

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
