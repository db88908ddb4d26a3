#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;  // bytes

}  // namespace

#if defined(__AVX512F__)

void transpose_words(const std::byte* const rows[16], int64_t offset, std::byte* cells) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int64_t r = 0; r < 16; ++r) a[r] = _mm512_loadu_si512(rows[r] + offset);
  // Exchanges within 128-bit lanes: pairs of words of two rows, then quads of four rows.
#pragma GCC unroll 16
  for (int64_t r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < 16; r += 4) {
    a[r] = _mm512_unpacklo_epi64(b[r], b[r + 2]);
    a[r + 1] = _mm512_unpackhi_epi64(b[r], b[r + 2]);
    a[r + 2] = _mm512_unpacklo_epi64(b[r + 1], b[r + 3]);
    a[r + 3] = _mm512_unpackhi_epi64(b[r + 1], b[r + 3]);
  }
  // a[4 i + j], lane l: word 4 l + j of rows 4 i .. 4 i + 3. Collect the lanes l of i = 0..3.
#pragma GCC unroll 16
  for (int64_t j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xee);
    _mm512_storeu_si512(cells + j * kCell, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(cells + (4 + j) * kCell, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(cells + (8 + j) * kCell, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(cells + (12 + j) * kCell, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

#elif defined(__AVX2__)

namespace {

// Words [0, 8) of 8 rows at `offset` into 8 half cells.
void transpose_8x8(const std::byte* const rows[8], int64_t offset, std::byte* cells) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; ++r) a[r] = load(rows[r] + offset);
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r += 2) {
    b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r += 4) {
    a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
    a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
    a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
    a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int64_t j = 0; j < 4; ++j) {
    store(cells + j * kCell, _mm256_permute2f128_ps(a[j], a[4 + j], 0x20));
    store(cells + (4 + j) * kCell, _mm256_permute2f128_ps(a[j], a[4 + j], 0x31));
  }
}

}  // namespace

void transpose_words(const std::byte* const rows[16], int64_t offset, std::byte* cells) {
  transpose_8x8(rows, offset, cells);
  transpose_8x8(rows, offset + 32, cells + 8 * kCell);
  transpose_8x8(rows + 8, offset, cells + 32);
  transpose_8x8(rows + 8, offset + 32, cells + 8 * kCell + 32);
}

#else

void transpose_words(const std::byte* const rows[16], int64_t offset, std::byte* cells) {
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t w = 0; w < 16; ++w)
      std::memcpy(cells + w * kCell + r * 4, rows[r] + offset + w * 4, 4);
  }
}

#endif

void interleave_codes(std::byte* words, int64_t bytes) {
#if defined(__AVX2__)
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  for (int64_t at = 0; at < bytes; at += kLanes * 4) {
    const Vu v = load_bits(words + at);
#if defined(__AVX512F__)
    store(words + at,
          _mm512_shuffle_epi8(reinterpret_cast<__m512i>(v), _mm512_broadcast_i32x4(order)));
#else
    store(words + at,
          _mm256_shuffle_epi8(reinterpret_cast<__m256i>(v), _mm256_broadcastsi128_si256(order)));
#endif
  }
#else
  using Pairs [[gnu::vector_size(16)]] = uint16_t;
  for (int64_t at = 0; at < bytes; at += 16) {
    Pairs v;
    std::memcpy(&v, words + at, sizeof v);
    store(words + at, __builtin_shufflevector(v, v, 0, 2, 4, 6, 1, 3, 5, 7));
  }
#endif
}

}  // namespace sluice::cpu::SLUICE_ISA
