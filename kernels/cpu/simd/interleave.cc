// Blocks of GGUF into panels (quant/blocks.h): four words of all 16 rows at a time. The next panel
// is fetched meanwhile, as 16 rows at once are more streams than a core notices.
#include <utility>

#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kLine = 64;  // a word of all rows
using Wide [[gnu::vector_size(4 * kLanes)]] = uint64_t;

// In each 16 bytes: the first or the last elements of a and b there, in turns.
template <bool kLast, class V, int... kLane>
inline V in_turns(V a, V b, std::integer_sequence<int, kLane...>) {
  constexpr int kCount = sizeof...(kLane), kEach = 16 * kCount / static_cast<int>(sizeof(V));
  return __builtin_shufflevector(a, b,
                                 (kLane / kEach * kEach + (kLast ? kEach / 2 : 0) +
                                  kLane % kEach / 2 + kLane % 2 * kCount)...);
}
template <bool kLast>
inline Vu words_in_turns(Vu a, Vu b) {
  return in_turns<kLast>(a, b, std::make_integer_sequence<int, kLanes>());
}
template <bool kLast>
inline Vu pairs_in_turns(Vu a, Vu b) {
  return reinterpret_cast<Vu>(in_turns<kLast>(reinterpret_cast<Wide>(a), reinterpret_cast<Wide>(b),
                                              std::make_integer_sequence<int, kLanes / 2>()));
}

// 16 bytes at `at` of every fourth row.
inline Vu load_of_rows(const uint8_t* const* rows, int64_t at) {
  using Part [[gnu::vector_size(16)]] = uint32_t;
  Part parts[kLanes / 4];
  for (int64_t i = 0; i < kLanes / 4; ++i) std::memcpy(&parts[i], rows[i * 4] + at, sizeof(Part));
#if defined(__AVX2__)
  const auto first = __builtin_shufflevector(parts[0], parts[1], 0, 1, 2, 3, 4, 5, 6, 7);
#if defined(__AVX512F__)
  const auto last = __builtin_shufflevector(parts[2], parts[3], 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(first, last, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return first;
#endif
#else
  return parts[0];
#endif
}

// Exchanges the bytes in the middle of each word.
inline Vu exchange_middle(Vu words) {
#if defined(__AVX2__)
  const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#if defined(__AVX512F__)
  return reinterpret_cast<Vu>(
      _mm512_shuffle_epi8(reinterpret_cast<__m512i>(words), _mm512_broadcast_i32x4(order)));
#else
  return reinterpret_cast<Vu>(
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(words), _mm256_broadcastsi128_si256(order)));
#endif
#else
  return (words & 0xff0000ff) | (words & 0xff00) << 8 | (words >> 8 & 0xff00);
#endif
}

// Words [first, first + 4) of kLanes rows, which begin at `at` in each.
inline void interleave_four(const InterleaveJob& job, int64_t row, int64_t at, int64_t first,
                            uint8_t* to) {
  const uint8_t* const* rows = job.rows + row;
  const Vu a = load_of_rows(rows, at), b = load_of_rows(rows + 1, at);
  const Vu c = load_of_rows(rows + 2, at), d = load_of_rows(rows + 3, at);
  const Vu low0 = words_in_turns<false>(a, b), low1 = words_in_turns<false>(c, d);
  const Vu high0 = words_in_turns<true>(a, b), high1 = words_in_turns<true>(c, d);
  const Vu words[4] = {pairs_in_turns<false>(low0, low1), pairs_in_turns<true>(low0, low1),
                       pairs_in_turns<false>(high0, high1), pairs_in_turns<true>(high0, high1)};
  const int64_t first_codes = job.layout.first_codes - first;
#pragma GCC unroll 4
  for (int64_t w = 0; w < 4; ++w) {
    const bool codes = w >= first_codes && w < first_codes + job.layout.codes;
    store(to + (first + w) * kLine + row * 4, codes ? exchange_middle(words[w]) : words[w]);
  }
}

// Bytes that are no whole word, one or two.
template <class Rest>
inline void interleave_rest(const InterleaveJob& job, int64_t at, uint8_t* to) {
  for (int64_t r = 0; r < 16; ++r)
    std::memcpy(to + r * static_cast<int64_t>(sizeof(Rest)), job.rows[r] + at, sizeof(Rest));
}

}  // namespace

void interleave(const InterleaveJob& job) {
  const int64_t bytes = job.layout.bytes, words = bytes / 4, rest = bytes % 4;
  const int64_t begin = job.layout.rest_first ? rest : 0;  // of the words
  const int64_t rest_at = job.layout.rest_first ? 0 : words * 4;
  uint8_t* to = job.to;
  for (int64_t block = 0; block < job.blocks * bytes; block += bytes, to += 16 * bytes) {
    for (int64_t line = (block + kLine - 1) / kLine * kLine; line < block + bytes; line += kLine)
      for (int64_t r = 0; r < 16; ++r) __builtin_prefetch(job.next[r] + line, 0, 2);
    for (int64_t w = 0; w < words; w += 4) {
      const int64_t first = w + 4 <= words ? w : words - 4;  // the last may overlap those before
      for (int64_t row = 0; row < 16; row += kLanes)
        interleave_four(job, row, block + begin + first * 4, first, to);
    }
    if (rest == 1) interleave_rest<uint8_t>(job, block + rest_at, to + words * kLine);
    if (rest == 2) interleave_rest<uint16_t>(job, block + rest_at, to + words * kLine);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
