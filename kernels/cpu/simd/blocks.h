// Codes of 2 to 8 bits, as quant/format.h and quant/blocks.h lay them out in panels, into cells of
// pairs (columns k and k + 1 of a row in a lane), and what they are multiplied by. Codes that are
// integers become integers of 16 bits, others values of bf16, in which they are exact.
#pragma once

#include "kernels/cpu/simd/block_rows.h"
#include "kernels/cpu/simd/table_blocks.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// 32 columns of nibbles in four words from `first` on: 16 columns low, the next 16 high. `fifth`:
// the word of their fifth bits, if they have any.
template <bool kFive, int kZero = 0>
inline void nibbles_of_32(const BlockRows& rows, int first, Vu fifth) {
  for (int w = 0; w < 4; ++w) {
    const Vu word = rows.word(first + w);
    for (int k = 0; k < 4; ++k) {  // two columns each
      const int col = w * 4 + k % 2 * 2 + k / 2 * 16;
      Vu codes = word >> (k % 2 * 8 + k / 2 * 4) & 0x000f000f;
      if (kFive) codes |= (fifth >> col & 1) << 4 | (fifth >> (col + 1) & 1) << 20;
      rows.set_halves<kZero>(col, codes);
    }
  }
}

inline void decode_q4_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(4));
  nibbles_of_32<false, 8>(rows, 0, Vu{});
}
inline void scales_of_q4_1(const BlockRows& rows) {
  rows.set_scale(0, low_half(rows.word(0)));
  rows.set_min(0, -high_half(rows.word(0)));
}
inline void decode_q4_1(const BlockRows& rows) {
  scales_of_q4_1(rows);
  nibbles_of_32<false>(rows, 1, Vu{});
}
inline void decode_q5_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(5));
  nibbles_of_32<true, 16>(rows, 1, rows.word(0));
}
inline void decode_q5_1(const BlockRows& rows) {
  scales_of_q4_1(rows);
  nibbles_of_32<true>(rows, 2, rows.word(1));
}

inline void decode_q8_0(const BlockRows& rows) {
  rows.set_scale(0, rows.half(8));
  for (int w = 0; w < 8; ++w) {
    const auto word = reinterpret_cast<Halves>(rows.word(w));
    rows.set_halves(w * 4, reinterpret_cast<Vu>((word << 8) >> 8));
    rows.set_halves(w * 4 + 2, reinterpret_cast<Vu>(word >> 8));
  }
}

inline void scales_of_q2_k(const BlockRows& rows) {
  const Vf d = low_half(rows.word(20)), dmin = high_half(rows.word(20));
  for (int g = 0; g < 16; ++g) {
    const Vu both = byte_of(rows.word(g / 4), g % 4);
    rows.set_scale(g, d * floats(both & 15));
    rows.set_min(g, dmin * floats(both >> 4));
  }
}
inline void decode_q2_k(const BlockRows& rows) {
  scales_of_q2_k(rows);
  for (int w = 0; w < 16; ++w) {
    const Vu word = rows.word(4 + w);
    for (int k = 0; k < 8; ++k) {
      const int col = w / 8 * 128 + k / 2 * 32 + w % 8 * 4 + k % 2 * 2;
      rows.set_halves(col, word >> (k % 2 * 8 + k / 2 * 2) & 0x00030003);
    }
  }
}

inline void scales_of_q3_k(const BlockRows& rows) {
  const Vf d = rows.half(27);
  for (int four = 0; four < 4; ++four) {
    const Vu low = rows.word(24 + four % 2) >> (four / 2 * 4) & 0x0f0f0f0f;
    const Vu codes = low | (rows.word(26) >> (four * 2) & 0x03030303) << 4;
    for (int i = 0; i < 4; ++i) rows.set_scale(four * 4 + i, d * (floats(byte_of(codes, i)) - 32));
  }
}
inline void decode_q3_k(const BlockRows& rows) {
  scales_of_q3_k(rows);
  for (int w = 0; w < 16; ++w) {
    const Vu word = rows.word(8 + w), mask = rows.word(w % 8);
    for (int k = 0; k < 8; ++k) {
      const int part = w / 8 * 4 + k / 2;  // of 32 columns
      const Vu low = word >> (k % 2 * 8 + k / 2 * 2) & 0x00030003;
      const Vu high = mask >> (k % 2 * 8 + part) & 0x00010001;
      rows.set_halves<4>(part * 32 + w % 8 * 4 + k % 2 * 2, low | high << 2);
    }
  }
}

// Four scales and four minimums at a time, a byte each: groups 4 * half on.
struct SixBitScales {
  Vu scales, mins;
};
inline SixBitScales six_bit_scales(Vu first, Vu second, Vu third, int half) {
  if (half == 0) return {first & 0x3f3f3f3f, second & 0x3f3f3f3f};
  return {(third & 0x0f0f0f0f) | (first >> 2 & 0x30303030),
          (third >> 4 & 0x0f0f0f0f) | (second >> 2 & 0x30303030)};
}
// Decodes scales and minimums of blocks that begin with d, dmin and 12 bytes of scales.
inline void scales_of_k(const BlockRows& rows) {
  const Vf d = low_half(rows.word(0)), dmin = high_half(rows.word(0));
  for (int half = 0; half < 2; ++half) {
    const SixBitScales four = six_bit_scales(rows.word(1), rows.word(2), rows.word(3), half);
    for (int i = 0; i < 4; ++i) {
      rows.set_scale(half * 4 + i, d * floats(byte_of(four.scales, i)));
      rows.set_min(half * 4 + i, dmin * floats(byte_of(four.mins, i)));
    }
  }
}

template <bool kFive>
inline void decode_q45_k(const BlockRows& rows) {
  scales_of_k(rows);
  for (int w = 0; w < 32; ++w) {
    const Vu word = rows.word((kFive ? 12 : 4) + w);
    for (int k = 0; k < 4; ++k) {
      const int part = w / 8 * 2 + k / 2;  // of 32 columns
      Vu codes = word >> (k % 2 * 8 + k / 2 * 4) & 0x000f000f;
      if (kFive) codes |= (rows.word(4 + w % 8) >> (k % 2 * 8 + part) & 0x00010001) << 4;
      rows.set_halves(part * 32 + w % 8 * 4 + k % 2 * 2, codes);
    }
  }
}

inline void scales_of_q6_k(const BlockRows& rows) {
  const Vf d = rows.half(52);
  for (int g = 0; g < 16; ++g) {
    const Vi scale = reinterpret_cast<Vi>(rows.word(48 + g / 4) << (24 - g % 4 * 8)) >> 24;
    rows.set_scale(g, d * __builtin_convertvector(scale, Vf));
  }
}
inline void decode_q6_k(const BlockRows& rows) {
  scales_of_q6_k(rows);
  for (int w = 0; w < 32; ++w) {  // words of low nibbles: 64 columns and the next 64
    const Vu low = rows.word(w), high = rows.word(32 + w / 16 * 8 + w % 8);
    for (int k = 0; k < 4; ++k) {
      const int part = w % 16 / 8 + k / 2 * 2;  // of 32 columns, among four
      const Vu codes = (low >> (k % 2 * 8 + k / 2 * 4) & 0x000f000f) |
                       (high >> (k % 2 * 8 + part * 2) & 0x00030003) << 4;
      rows.set_halves<32>(w / 16 * 128 + part * 32 + w % 8 * 4 + k % 2 * 2, codes);
    }
  }
}

// 32 columns of codes of kBits bits, less nothing.
template <int kBits>
inline void decode_run(const BlockRows& rows) {
  constexpr int kLow = kBits == 3 ? 2 : kBits == 5 || kBits == 6 ? 4 : kBits;  // bits of a field
  constexpr int kHigh = kBits - kLow;
  constexpr int kCols = 32 / kLow, kHighCols = kHigh == 2 ? 16 : 32;  // of a word
  constexpr uint32_t kMask = 0x00010001u * ((1 << kLow) - 1);
  constexpr uint32_t kHighMask = 0x00010001u * ((1 << kHigh) - 1);
  for (int w = 0; w < kLow; ++w) {
    const Vu word = rows.word(w);
    for (int k = 0; k < kCols / 2; ++k) {
      const int col = w * kCols + k * 2;
      Vu codes = word >> (k * kLow) & kMask;
      if constexpr (kHigh > 0) {
        const Vu high = rows.word(kLow + col / kHighCols);
        codes |= (high >> (col % kHighCols / 2 * kHigh) & kHighMask) << kLow;
      }
      rows.set_halves(col, codes);
    }
  }
}

// Floats of four bits, doubled.
inline void decode_float_run(const BlockRows& rows) {
  for (int w = 0; w < 4; ++w) {
    const Vu word = rows.word(w);
    for (int k = 0; k < 4; ++k) set_indexed(rows, w * 8 + k * 2, word >> (k * 4) & 0x000f000f);
  }
}

inline Vf eight_bit_floats(Vu codes) {
  const Vu magnitude = codes & 0x7f;
  const Vu large = (magnitude << 20) + (120u << 23), small = as_bits(floats(magnitude) * 0x1p-9f);
  const Vu is_small = reinterpret_cast<Vu>(magnitude < 8);
  return as_floats((small & is_small) | (large & ~is_small) | (codes & 0x80) << 24);
}
inline void decode_e4m3_run(const BlockRows& rows) {
  for (int w = 0; w < 8; ++w) {
    const Vu word = rows.word(w);
    for (int k = 0; k < 2; ++k) {
      const Vu codes = word >> (k * 8) & 0x00ff00ff;
      rows.set_values(w * 4 + k * 2, eight_bit_floats(codes & 0xffff),
                      eight_bit_floats(codes >> 16));
    }
  }
}

inline Vf value_of(const float* values, Vu codes) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(codes), load(values));
#else
  float of[kLanes];
  for (int i = 0; i < kLanes; ++i) of[i] = values[codes[i]];
  return load(of);
#endif
}
// Codes of four bits as 16 values have them; `wide`: a column's values as float32 in 64 bytes.
inline void decode_own_run(const BlockRows& rows, const float* values, bool wide) {
  for (int w = 0; w < 4; ++w) {
    const Vu word = rows.word(w);
    for (int k = 0; k < 4; ++k) {
      const Vu codes = word >> (k * 4) & 0x000f000f;
      const Vf first = value_of(values, codes & 0xffff), second = value_of(values, codes >> 16);
      const int col = w * 8 + k * 2;
      if (wide) {
        store(rows.to.cells + col * 64 + rows.lane * 4, first);
        store(rows.to.cells + (col + 1) * 64 + rows.lane * 4, second);
      } else {
        rows.set_values(col, first, second);
      }
    }
  }
}

inline void decode_run(const BlockRows& rows, int bits) {
  if (bits == 1) return decode_run<1>(rows);
  if (bits == 2) return decode_run<2>(rows);
  if (bits == 3) return decode_run<3>(rows);
  if (bits == 4) return decode_run<4>(rows);
  if (bits == 5) return decode_run<5>(rows);
  if (bits == 6) return decode_run<6>(rows);
  decode_run<8>(rows);
}

inline void decode_block(const BlockRows& rows, DType type) {
  switch (type) {
    case DType::q4_0:
      return decode_q4_0(rows);
    case DType::q4_1:
      return decode_q4_1(rows);
    case DType::q5_0:
      return decode_q5_0(rows);
    case DType::q5_1:
      return decode_q5_1(rows);
    case DType::q8_0:
      return decode_q8_0(rows);
    case DType::q2_k:
      return decode_q2_k(rows);
    case DType::q3_k:
      return decode_q3_k(rows);
    case DType::q4_k:
      return decode_q45_k<false>(rows);
    case DType::q5_k:
      return decode_q45_k<true>(rows);
    case DType::iq4_nl:
    case DType::iq4_xs:
    case DType::e2m1_e8m0:
    case DType::e2m1_e4m3:
      return decode_nibbles(rows, type);
    case DType::iq3_s:
      return decode_iq3_s(rows);
    case DType::iq3_xxs:
      return decode_iq3_xxs(rows);
    case DType::iq2_s:
      return decode_iq2_s(rows);
    case DType::iq2_xs:
      return decode_iq2_xs(rows);
    case DType::iq2_xxs:
      return decode_iq2_xxs(rows);
    case DType::iq1_s:
      return decode_iq1_s(rows);
    case DType::iq1_m:
      return decode_iq1_m(rows);
    case DType::tq1_0:
      return decode_tq1_0(rows);
    case DType::tq2_0:
      return decode_tq2_0(rows);
    case DType::q1_0:
      return decode_q1_0(rows);
    case DType::q2_0:
      return decode_q2_0(rows);
    default:
      return decode_q6_k(rows);
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
