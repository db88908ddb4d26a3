// Blocks whose codes are looked up (quant/table_blocks.h says how they are made), into cells of
// pairs as kernels/cpu/simd/blocks.h makes them.
#pragma once

#include "kernels/cpu/simd/block_rows.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Entries of 16 bits, of a table with one more that is not asked for.
template <class Entry>
inline Vu look_up(const Entry* table, Vu index) {
  static_assert(sizeof(Entry) == 2);
#if defined(__AVX2__)
  const auto* words = reinterpret_cast<const int*>(table);
  constexpr int kParts = static_cast<int>(kLanes / 8);
  __m256i parts[kParts];
  std::memcpy(parts, &index, sizeof parts);
  for (__m256i& part : parts) part = _mm256_i32gather_epi32(words, part, 2);
  std::memcpy(&index, parts, sizeof parts);
  return index & 0xffff;
#else
  Vu entries{};
  for (int64_t i = 0; i < kLanes; ++i) entries[i] = static_cast<uint16_t>(table[index[i]]);
  return entries;
#endif
}

// Codes of the columns `col` and the next, by indexes in both halves of each lane.
inline void set_indexed(const BlockRows& rows, int col, Vu indexes) {
  std::byte* to = rows.to.cells + col * 32 + rows.lane * 4;
#if defined(__AVX512F__)
  const auto low = reinterpret_cast<__m512i>(load_bits(rows.values));
  const auto high = reinterpret_cast<__m512i>(load_bits(rows.values + 32));
  store(to, _mm512_permutex2var_epi16(low, reinterpret_cast<__m512i>(indexes), high));
#else
  store(to, look_up(rows.values, indexes & 0xffff) | look_up(rows.values, indexes >> 16) << 16);
#endif
}

inline Vu byte_at(const BlockRows& rows, int at) { return byte_of(rows.word(at / 4), at % 4); }
inline Vu u16_at(const BlockRows& rows, int at) {
  return rows.word(at / 2) >> (at % 2 * 16) & 0xffff;
}
inline Vu nibble_at(const BlockRows& rows, int first_word, int at) {
  return rows.word(first_word + at / 8) >> (at % 8 * 4) & 15;
}

// Blocks of four-bit codes, in words of codes: the lower nibbles of a group, then its upper ones.
struct NibbleBlock {
  int first_word = 0;
  int groups = 1;
  int words = 4;  // of a group
};
inline NibbleBlock nibble_block(DType type) {
  if (type == DType::iq4_xs) return {2, 8, 4};
  if (type == DType::e2m1_e4m3) return {1, 4, 2};
  return {};
}

inline void scales_of_nibbles(const BlockRows& rows, DType type) {
  if (type == DType::iq4_nl) return rows.set_scale(0, rows.half(4));
  if (type == DType::e2m1_e8m0)
    return rows.set_scale(0, e8m0_to_float(load_u8(rows.block + 4 * 64 + rows.lane)) * 0.5f);
  const Vu first = rows.word(0);
  for (int g = 0; type == DType::iq4_xs && g < 8; ++g) {
    const Vu scale = nibble_at(rows, 1, g) | (first >> (16 + 2 * g) & 3) << 4;
    rows.set_scale(g, low_half(first) * (floats(scale) - 32));
  }
  for (int g = 0; type == DType::e2m1_e4m3 && g < 4; ++g) {
    const Vu code = byte_of(first, g);
    const Vu is_number = ~reinterpret_cast<Vu>(code == 127);
    // Its exponent's bias is 7 instead of 127; half of it.
    rows.set_scale(g, as_floats((code & 127 & is_number) << 20) * 0x1p119f);
  }
}

inline void decode_nibbles(const BlockRows& rows, DType type) {
  scales_of_nibbles(rows, type);
  const NibbleBlock block = nibble_block(type);
  for (int w = 0; w < block.groups * block.words; ++w) {
    const Vu word = rows.word(block.first_word + w);
    const int col = w / block.words * block.words * 8 + w % block.words * 4;
    for (int k = 0; k < 4; ++k)
      set_indexed(rows, col + k % 2 * 2 + k / 2 * block.words * 4,
                  word >> (k % 2 * 8 + k / 2 * 4) & 0x000f000f);
  }
}

// A vector of 8, with a sign for each; of 4.
inline void set_vector_of_8(const BlockRows& rows, int col, Vu number, Vu signs) {
  const Vu vector = look_up(rows.grid, number);
  for (int k = 0; k < 4; ++k) {
    const Vu both = vector >> (4 * k) & 15, minus = signs >> (2 * k) & 3;
    set_indexed(rows, col + 2 * k,
                ((both | both << 14) & 0x00030003) | ((minus << 2 | minus << 17) & 0x00040004));
  }
}
inline void set_vector_of_4(const BlockRows& rows, int col, Vu number, Vu signs) {
  const Vu vector = look_up(rows.grid, number);
  for (int k = 0; k < 2; ++k) {
    const Vu both = vector >> (8 * k) & 0x77, minus = signs >> (2 * k) & 3;
    set_indexed(rows, col + 2 * k,
                ((both | both << 12) & 0x00070007) | ((minus << 3 | minus << 18) & 0x00080008));
  }
}
// Eight signs, of which the last makes the number of minuses even.
inline Vu even_signs(Vu seven) {
  seven &= 127;
  Vu odd = seven ^ seven >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | (odd & 1) << 7;
}

inline void decode_iq3_s(const BlockRows& rows) {
  const Vf d = rows.half(27);
  for (int g = 0; g < 8; ++g) rows.set_scale(g, d * (floats(nibble_at(rows, 26, g)) * 2 + 1));
  for (int v = 0; v < 64; ++v) {
    const Vu ninth = rows.word(16 + v / 32) >> (v % 32) & 1;
    const Vu signs = byte_at(rows, 72 + v / 2) >> (v % 2 * 4);
    set_vector_of_4(rows, v * 4, byte_at(rows, v) | ninth << 8, signs);
  }
}

inline void decode_iq3_xxs(const BlockRows& rows) {
  const Vf d = rows.half(24);
  for (int g = 0; g < 8; ++g) {
    const Vu more = rows.word(16 + g);
    rows.set_scale(g, d * (floats(more >> 28) + 0.5f) * 0.5f);
    for (int v = 0; v < 8; ++v) {
      const Vu signs = even_signs(more >> (v / 2 * 7)) >> (v % 2 * 4);
      set_vector_of_4(rows, g * 32 + v * 4, byte_at(rows, g * 8 + v), signs);
    }
  }
}

// 16 groups' scales of four bits each.
inline void scales_of_iq2(const BlockRows& rows, Vf d, int first_word) {
  for (int g = 0; g < 16; ++g)
    rows.set_scale(g, d * (floats(nibble_at(rows, first_word, g)) + 0.5f) * 0.25f);
}

inline void decode_iq2_s(const BlockRows& rows) {
  scales_of_iq2(rows, rows.half(20), 18);
  for (int v = 0; v < 32; ++v) {
    const Vu upper = rows.word(16 + v / 16) >> (v % 16 * 2) & 3;
    set_vector_of_8(rows, v * 8, byte_at(rows, v) | upper << 8, byte_at(rows, 32 + v));
  }
}

inline void decode_iq2_xs(const BlockRows& rows) {
  scales_of_iq2(rows, rows.half(18), 16);
  for (int v = 0; v < 32; ++v) {
    const Vu both = u16_at(rows, v);
    set_vector_of_8(rows, v * 8, both & 511, even_signs(both >> 9));
  }
}

inline void decode_iq2_xxs(const BlockRows& rows) {
  const Vf d = rows.half(16);
  for (int g = 0; g < 8; ++g) {
    const Vu more = rows.word(g * 2 + 1);
    rows.set_scale(g, d * (floats(more >> 28) + 0.5f) * 0.25f);
    for (int v = 0; v < 4; ++v)
      set_vector_of_8(rows, g * 32 + v * 8, byte_of(rows.word(g * 2), v),
                      even_signs(more >> (v * 7)));
  }
}

inline void decode_iq1_s(const BlockRows& rows) {
  const Vf d = rows.half(12);
  for (int g = 0; g < 8; ++g) {
    const Vu more = u16_at(rows, 16 + g);
    rows.set_scale(g, d * floats((more >> 12 & 7) * 2 + 1) * 0.125f);
    for (int v = 0; v < 4; ++v) {
      const Vu number = byte_at(rows, g * 4 + v) | (more >> (v * 3) & 7) << 8;
      set_vector_of_8(rows, g * 32 + v * 8, number, Vu{} - (more >> 15));
    }
  }
}

inline void decode_iq1_m(const BlockRows& rows) {
  const Vu first = rows.word(12), second = rows.word(13);
  const Vf d = f16_to_float((first >> 12 & 0xf) | (first >> 24 & 0xf0) | (second >> 4 & 0xf00) |
                            (second >> 16 & 0xf000));
  for (int g = 0; g < 16; ++g) {
    const Vu bits = u16_at(rows, 24 + g / 4) >> (g % 4 * 3) & 7;
    rows.set_scale(g, d * floats(bits * 2 + 1) * 0.125f);
  }
  for (int v = 0; v < 32; ++v) {
    const Vu more = nibble_at(rows, 8, v);
    set_vector_of_8(rows, v * 8, byte_at(rows, v) | (more & 7) << 8, Vu{} - (more >> 3));
  }
}

inline void decode_tq1_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(13));
  for (int at = 0; at < 52; at += 2) {  // bytes
    const int first = at < 32 ? 0 : at < 48 ? 32 : 48;
    const int wide = at < 32 ? 32 : at < 48 ? 16 : 4, digits = at < 48 ? 5 : 4;
    Vu fractions = rows.word(at / 4) >> (at % 4 / 2 * 8) & 0x00ff00ff;
    for (int n = 0; n < digits; ++n) {
      const Vu three = fractions * 3;
      set_indexed(rows, first * 5 + n * wide + at - first, three >> 8 & 0x00030003);
      fractions = three & 0x00ff00ff;
    }
  }
}

inline void decode_tq2_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(16));
  for (int w = 0; w < 16; ++w) {
    const Vu word = rows.word(w);
    for (int k = 0; k < 8; ++k)
      set_indexed(rows, w / 8 * 128 + k / 2 * 32 + w % 8 * 4 + k % 2 * 2,
                  word >> (k % 2 * 8 + k / 2 * 2) & 0x00030003);
  }
}

inline void decode_q1_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(4));
  for (int col = 0; col < 128; col += 2) {
    const Vu both = rows.word(col / 32) >> (col % 32) & 3;
    set_indexed(rows, col, (both | both << 15) & 0x00010001);
  }
}

inline void decode_q2_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(4));
  for (int col = 0; col < 64; col += 2) {
    const Vu both = rows.word(col / 16) >> (col % 16 * 2) & 15;
    set_indexed(rows, col, (both | both << 14) & 0x00030003);
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
