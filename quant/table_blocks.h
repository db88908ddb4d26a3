// Blocks of GGUF whose codes are the values of an index: four-bit floats and IQ4 (quant/blocks.h
// has what all blocks have in common), vectors of a grid (quant/grids.h) with signs, and codes of
// one or two bits. The sources are ggml's (ggml-quants.c) and the gguf package. Beside code(),
// scale() and min() such a block has
//   value(index)  the code of an index, which is below 64
//   grid()        the vectors of magnitudes, if it has them
// so that SIMD code needs no more than to find the indexes.
#pragma once

#include "quant/block_layout.h"
#include "quant/grids.h"

namespace sluice {

struct NoMins {
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

// 16 values that are closer to one another around zero.
struct Iq4Values : NoMins {
  SLUICE_HD static constexpr int value(int index) {
    // -127, -104, -83, -65, -49, -35, -22, -10; 1, 13, 25, 38, 53, 69, 89, 113
    constexpr uint64_t kNegative = 0xf6eaddcfbfad9881, kPositive = 0x7159453526190d01;
    return static_cast<int8_t>((index & 8 ? kPositive : kNegative) >> (index % 8 * 8));
  }
};
// E2M1, times 2: their scales are halved.
struct FloatValues : NoMins {
  SLUICE_HD static constexpr int value(int index) {
    return static_cast<int>(2 * e2m1_to_float(static_cast<uint32_t>(index)));
  }
};
// -1, 0, 1, and of Q2_0 2.
struct SmallValues : NoMins {
  SLUICE_HD static constexpr int value(int index) { return index - 1; }
};
// The magnitudes of IQ2: two bits below a sign.
struct Iq2Values : NoMins {
  SLUICE_HD static constexpr int value(int index) {
    const int magnitude = (index & 3) == 0 ? 8 : (index & 3) == 1 ? 25 : 43;
    return index & 4 ? -magnitude : magnitude;
  }
};
// IQ1's -1, 0 or 1, and an eighth more or (bit 2) less, times 8: their scales are divided by 8.
struct Iq1Values : NoMins {
  SLUICE_HD static constexpr int value(int index) {
    return ((index & 3) - 1) * 8 + (index & 4 ? -1 : 1);
  }
  SLUICE_HD static const uint16_t* grid() { return iq1_grid(); }
};

// Index k of a vector of 8: two bits, and a sign.
SLUICE_HD inline int index_of_8(uint32_t vector, uint32_t signs, int k) {
  return static_cast<int>((vector >> (2 * k) & 3) | (signs >> k & 1) << 2);
}
// Index k of two vectors of 4: three bits, and a sign.
SLUICE_HD inline int index_of_4(uint32_t vector, uint32_t signs, int k) {
  return static_cast<int>((vector >> (4 * (k % 4)) & 7) | (signs >> k & 1) << 3);
}
// Eight signs, of which the last makes the number of minuses even.
SLUICE_HD constexpr uint32_t even_signs(uint32_t seven) {
  seven &= 127;
  uint32_t odd = seven ^ seven >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | (odd & 1) << 7;
}
SLUICE_HD inline uint32_t u16_at(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8; }
SLUICE_HD inline uint32_t u32_at(const uint8_t* p) { return u16_at(p) | u16_at(p + 2) << 16; }
// Nibble i of bytes, the lower ones first.
SLUICE_HD inline int nibble_at(const uint8_t* p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }

template <>
struct Block<DType::iq4_nl> : Iq4Values {
  static constexpr BlockLayout kLayout{32, 18, 32, false, true, 0, 4, 128, 127};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[2 + c % 16] >> (c / 16 * 4) & 15);
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
};

// d; 8 scales of 6 bits (less 32): upper two bits, then lower four; codes of 32 columns each.
template <>
struct Block<DType::iq4_xs> : Iq4Values {
  static constexpr BlockLayout kLayout{256, 136, 32, false, false, 2, 32, 128, 127};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[8 + c / 32 * 16 + c % 16] >> (c % 32 / 16 * 4) & 15);
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    const int high = static_cast<int>(u16_at(b + 2) >> (2 * g) & 3);
    return f16_at(b) * static_cast<float>((nibble_at(b + 4, g) | high << 4) - 32);
  }
};

template <>
struct Block<DType::e2m1_e8m0> : FloatValues {
  static constexpr BlockLayout kLayout{32, 17, 32, false, true, 0, 4, 12, 12};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[1 + c % 16] >> (c / 16 * 4) & 15);
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return 0.5f * e8m0_to_float(b[0]); }
};

// Four E4M3 scales whose sign is not looked at and whose 127 is 0, then codes of 16 columns each.
template <>
struct Block<DType::e2m1_e4m3> : FloatValues {
  static constexpr BlockLayout kLayout{64, 36, 16, false, false, 1, 8, 12, 12};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[4 + c / 16 * 8 + c % 8] >> (c % 16 / 8 * 4) & 15);
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return b[g] == 127 ? 0 : 0.5f * E4M3::decode(b[g] & 127u);
  }
};

// d; numbers of vectors; their ninth bits; signs; four bits for each 32 columns.
template <>
struct Block<DType::iq3_s> : NoMins {
  static constexpr BlockLayout kLayout{256, 110, 32, false, true};
  SLUICE_HD static constexpr int value(int index) {
    return (2 * (index & 7) + 1) * (index & 8 ? -1 : 1);
  }
  SLUICE_HD static const uint16_t* grid() { return iq3_s_grid(); }
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int v = c / 4;
    const uint32_t vector = grid()[b[2 + v] | (b[66 + v / 8] >> (v % 8) & 1) << 8];
    return value(index_of_4(vector, b[74 + c / 8], c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b) * static_cast<float>(1 + 2 * nibble_at(b + 106, g));
  }
};

// d; numbers of vectors; for each 32 columns four times seven signs, and four bits of a scale.
template <>
struct Block<DType::iq3_xxs> : NoMins {
  static constexpr BlockLayout kLayout{256, 98, 32, false, true};
  SLUICE_HD static constexpr int value(int index) {
    return ((index & 7) == 7 ? 62 : 8 * (index & 7) + 4) * (index & 8 ? -1 : 1);
  }
  SLUICE_HD static const uint16_t* grid() { return iq3_xxs_grid(); }
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const uint32_t signs = even_signs(u32_at(b + 66 + c / 32 * 4) >> (c % 32 / 8 * 7));
    return value(index_of_4(grid()[b[2 + c / 4]], signs, c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b) * (0.5f + static_cast<float>(b[69 + g * 4] >> 4)) * 0.5f;
  }
};

// A group's scale of IQ2, from its four bits.
SLUICE_HD inline float iq2_scale(const uint8_t* b, int bits) {
  return f16_at(b) * (0.5f + static_cast<float>(bits)) * 0.25f;
}

// d; numbers of vectors; signs; their ninth and tenth bits; four bits for each 16 columns.
template <>
struct Block<DType::iq2_s> : Iq2Values {
  static constexpr BlockLayout kLayout{256, 82, 16, false, true};
  SLUICE_HD static const uint16_t* grid() { return iq2_s_grid(); }
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int v = c / 8;
    const uint32_t vector = grid()[b[2 + v] | (b[66 + v / 4] >> (v % 4 * 2) & 3) << 8];
    return value(index_of_8(vector, b[34 + v], c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return iq2_scale(b, nibble_at(b + 74, g));
  }
};

// d; numbers of vectors, nine bits below seven signs; four bits for each 16 columns.
template <>
struct Block<DType::iq2_xs> : Iq2Values {
  static constexpr BlockLayout kLayout{256, 74, 16, false, true};
  SLUICE_HD static const uint16_t* grid() { return iq2_xs_grid(); }
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const uint32_t both = u16_at(b + 2 + c / 8 * 2);
    return value(index_of_8(grid()[both & 511], even_signs(both >> 9), c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return iq2_scale(b, nibble_at(b + 66, g));
  }
};

// d; for each 32 columns numbers of vectors, four times seven signs, and four bits of a scale.
template <>
struct Block<DType::iq2_xxs> : Iq2Values {
  static constexpr BlockLayout kLayout{256, 66, 32, false, true};
  SLUICE_HD static const uint16_t* grid() { return iq2_xxs_grid(); }
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const uint8_t* part = b + 2 + c / 32 * 8;
    const int v = c % 32 / 8;
    return value(index_of_8(grid()[part[v]], even_signs(u32_at(part + 4) >> (v * 7)), c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) { return iq2_scale(b, b[9 + g * 8] >> 4); }
};

// d; numbers of vectors; for each 32 columns their upper bits, three of a scale, and a sign.
template <>
struct Block<DType::iq1_s> : Iq1Values {
  static constexpr BlockLayout kLayout{256, 50, 32, false, true};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int v = c / 8;
    const uint32_t more = u16_at(b + 34 + v / 4 * 2);
    const uint32_t vector = grid()[b[2 + v] | (more >> (v % 4 * 3) & 7) << 8];
    return value(index_of_8(vector, more >> 15 ? 255 : 0, c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b) * static_cast<float>((b[35 + g * 2] >> 3 & 14) | 1) * 0.125f;
  }
};

// Numbers of vectors; their upper bits below a sign; for each 16 columns three bits of a scale,
// four in 16 bits, whose upper four are a part of d.
template <>
struct Block<DType::iq1_m> : Iq1Values {
  static constexpr BlockLayout kLayout{256, 56, 16, false, false};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int v = c / 8, more = nibble_at(b + 32, v);
    return value(index_of_8(grid()[b[v] | (more & 7) << 8], more & 8 ? 255 : 0, c % 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    uint32_t d = 0;
    for (int i = 0; i < 4; ++i) d |= uint32_t{b[49 + i * 2]} >> 4 << (4 * i);
    const uint32_t bits = u16_at(b + 48 + g / 4 * 2) >> (g % 4 * 3) & 7;
    return f16_to_float(static_cast<uint16_t>(d)) * static_cast<float>(2 * bits + 1) * 0.125f;
  }
};

// Bytes of five codes to the base of 3, as fractions of 256: 32 bytes of 160 columns, 16 of 80, and
// 4 of the last 16; d.
template <>
struct Block<DType::tq1_0> : SmallValues {
  static constexpr BlockLayout kLayout{256, 54, 256, false, false, 0, 13};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int first = c < 160 ? 0 : c < 240 ? 32 : 48;  // byte
    const int wide = c < 160 ? 32 : c < 240 ? 16 : 4, at = c - first * 5;
    uint32_t fraction = b[first + at % wide];
    for (int i = 0; i < at / wide; ++i) fraction = fraction * 3 & 255;
    return value(static_cast<int>(fraction * 3 >> 8));
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b + 52); }
};

template <>
struct Block<DType::tq2_0> : SmallValues {
  static constexpr BlockLayout kLayout{256, 66, 256, false, false, 0, 16};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[c / 128 * 32 + c % 32] >> (c % 128 / 32 * 2) & 3);
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b + 64); }
};

template <>
struct Block<DType::q1_0> : NoMins {
  static constexpr BlockLayout kLayout{128, 18, 128, false, true};
  SLUICE_HD static constexpr int value(int index) { return index & 1 ? 1 : -1; }
  SLUICE_HD static int code(const uint8_t* b, int c) { return value(b[2 + c / 8] >> (c % 8)); }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
};

template <>
struct Block<DType::q2_0> : SmallValues {
  static constexpr BlockLayout kLayout{64, 18, 64, false, true};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return value(b[2 + c / 4] >> (c % 4 * 2) & 3);
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
};

}  // namespace sluice
