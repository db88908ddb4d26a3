// Codes of weights in groups as tensor cores take them, a unit of 32 columns at a time: blocks of
// GGUF as they are stored, and runs of grouped codes (quant/format.h). A format's decoding is its
// quad(): four neighbouring codes as the bytes of a word, with few instructions for all four; and
// its factors(), which read a unit's scales and minimums with few loads.
//
// Lane 4g + t has of rows g and g + 8 the quads of columns 4t and 16 + 4t of a unit, so that each
// mma has the columns of one group, be it 32 columns or 16. The numbers of k are free: x has the
// columns in the order of the pairs (UnitOrder).
#pragma once

#include "kernels/cuda/element.h"
#include "kernels/cuda/grouped_rows.cuh"
#include "quant/blocks.h"

namespace sluice::cuda {

constexpr int kUnitCols = 32;
constexpr int kUnitSpan = 8;  // units from a multiple of it on are named by it and their number
static_assert(kRunCols == kUnitCols, "a unit is a run");

// A quad's bytes stand for:
//   small   integers below 128, from which kMinus is taken
//   bytes   integers, with 128 added
//   e2m1    floats of four bits; twice_e2m1: twice their value is meant
//   e4m3    floats of eight bits
//   own     places in the weight's table of 16
enum class Fields : uint8_t { small, bytes, e2m1, twice_e2m1, e4m3, own };

// Bytes 0 and 2 are a pair, and 1 and 3. The columns of these four bytes, from the quad's first on.
enum class UnitOrder : uint8_t {
  by_bytes,  // 0, 1, 2, 3
  by_pairs,  // 0, 2, 1, 3: pairs are neighbours
};

// The column, from the unit's first on, of element i of the eight that lane t multiplies.
__device__ inline int unit_column(UnitOrder order, int t, int i) {
  const int of_quad = i % 4;
  const bool middle = order == UnitOrder::by_bytes && (of_quad == 1 || of_quad == 2);
  return i / 4 * 16 + 4 * t + (middle ? 3 - of_quad : of_quad);
}

// A block's word at a multiple of what its size divides.
template <class Kind>
__device__ uint32_t word_at(const uint8_t* p) {
  constexpr int kBytes = Kind::kLayout.bytes;
  if constexpr (kBytes % 4 == 0) return load_as<uint32_t>(p);
  if constexpr (kBytes % 2 == 0)
    return load_as<uint16_t>(p) | static_cast<uint32_t>(load_as<uint16_t>(p + 2)) << 16;
  return u32_at(p);
}

// Four bits in the lowest bits of a word's bytes.
__device__ inline uint32_t spread_bits(uint32_t bits) {
  return (bits & 15) * 0x00204081 & 0x01010101;
}

__device__ inline float low_half(uint32_t word) {
  return f16_to_float(static_cast<uint16_t>(word));
}
__device__ inline float high_half(uint32_t word) {
  return f16_to_float(static_cast<uint16_t>(word >> 16));
}

// Scales and minimums of the groups of a block's unit u, one by one.
template <DType kType>
struct EachFactor {
  template <int kGroups>
  __device__ static void factors(const uint8_t* b, int u, float (&scales)[kGroups],
                                 float (&mins)[kGroups]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int group =
          (u * kUnitCols + i * (kUnitCols / kGroups)) / Block<kType>::kLayout.group_cols;
      scales[i] = Block<kType>::scale(b, group);
      mins[i] = Block<kType>::min(b, group);
    }
  }
};
// A block of one unit begins with its scale, and then perhaps what its minimum is the negative of.
struct FirstIsScale {
  __device__ static void factors(const uint8_t* b, int, float (&scales)[1], float (&mins)[1]) {
    scales[0] = low_half(load_as<uint16_t>(b));
    mins[0] = 0;
  }
};
struct FirstAreScaleAndMin {
  __device__ static void factors(const uint8_t* b, int, float (&scales)[1], float (&mins)[1]) {
    const auto both = load_as<uint32_t>(b);
    scales[0] = low_half(both);
    mins[0] = -high_half(both);
  }
};

// kAhead: units whose quads are asked for before the first is used, as registers allow.
template <Fields kCodes, int kUnitsAhead = kUnitSpan>
struct FieldCodes {
  static constexpr Fields kFields = kCodes;
  static constexpr int kMinus = 0, kAhead = kUnitsAhead;
};
template <int kLess = 0, int kUnitsAhead = kUnitSpan>
struct SmallCodes {
  static constexpr Fields kFields = Fields::small;
  static constexpr int kMinus = kLess, kAhead = kUnitsAhead;
};

// A block's codes: those of columns c to c + 3 of its unit u. Codes of vectors and of few bits are
// decoded one by one.
template <DType kType>
struct BlockCodes : EachFactor<kType>, FieldCodes<Fields::bytes, 1> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      codes |= static_cast<uint32_t>(Block<kType>::code(b, u * kUnitCols + c + i) + 128) << (8 * i);
    return codes;
  }
};

// Codes of four bits, 16 columns' below those of the next 16.
template <DType kType>
__device__ uint32_t halves_quad(const uint8_t* codes, int c) {
  return word_at<Block<kType>>(codes + c % 16) >> (c / 16 * 4) & 0x0f0f0f0f;
}
template <>
struct BlockCodes<DType::q4_0> : SmallCodes<8>, FirstIsScale {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    return halves_quad<DType::q4_0>(b + 2, c);
  }
};
template <>
struct BlockCodes<DType::q4_1> : SmallCodes<>, FirstAreScaleAndMin {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    return halves_quad<DType::q4_1>(b + 4, c);
  }
};
template <>
struct BlockCodes<DType::q5_0> : SmallCodes<16, 4>, FirstIsScale {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    const uint32_t high = word_at<Block<DType::q5_0>>(b + 2) >> c;
    return halves_quad<DType::q5_0>(b + 6, c) | spread_bits(high) << 4;
  }
};
template <>
struct BlockCodes<DType::q5_1> : SmallCodes<>, FirstAreScaleAndMin {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    const uint32_t high = word_at<Block<DType::q5_1>>(b + 4) >> c;
    return halves_quad<DType::q5_1>(b + 8, c) | spread_bits(high) << 4;
  }
};
template <>
struct BlockCodes<DType::q8_0> : FirstIsScale, FieldCodes<Fields::bytes> {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    return word_at<Block<DType::q8_0>>(b + 2 + c) ^ 0x80808080;
  }
};

// K-quants: 128 columns' codes of two bits, or 64 columns' of four, are in 32 bytes.
template <DType kType>
__device__ uint32_t two_bits_quad(const uint8_t* codes, int u, int c) {
  return word_at<Block<kType>>(codes + u / 4 * 32 + c) >> (u % 4 * 2) & 0x03030303;
}
template <DType kType>
__device__ uint32_t four_bits_quad(const uint8_t* codes, int u, int c) {
  return word_at<Block<kType>>(codes + u / 2 * 32 + c) >> (u % 2 * 4) & 0x0f0f0f0f;
}
// A bit of all eight units is in a byte.
template <DType kType>
__device__ uint32_t one_bit_quad(const uint8_t* codes, int u, int c) {
  return word_at<Block<kType>>(codes + c) >> u & 0x01010101;
}
template <>
struct BlockCodes<DType::q2_k> : SmallCodes<> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    return two_bits_quad<DType::q2_k>(b + 16, u, c);
  }
  __device__ static void factors(const uint8_t* b, int u, float (&scales)[2], float (&mins)[2]) {
    const uint32_t both = load_as<uint32_t>(b + 80), bits = load_as<uint16_t>(b + 2 * u);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales[i] = low_half(both) * static_cast<float>(bits >> (8 * i) & 15);
      mins[i] = high_half(both) * static_cast<float>(bits >> (8 * i + 4) & 15);
    }
  }
};
template <>
struct BlockCodes<DType::q3_k> : SmallCodes<4> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    return two_bits_quad<DType::q3_k>(b + 32, u, c) | one_bit_quad<DType::q3_k>(b, u, c) << 2;
  }
  __device__ static void factors(const uint8_t* b, int u, float (&scales)[2], float (&mins)[2]) {
    const uint32_t low = load_as<uint16_t>(b + 96 + u % 4 * 2) >> (u / 4 * 4) & 0x0f0f;
    const uint32_t high = load_as<uint16_t>(b + 104 + u % 2 * 2) >> (u / 2 * 2) & 0x0303;
    const uint32_t bits = low | high << 4;
    const float all = low_half(load_as<uint16_t>(b + 108));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales[i] = all * static_cast<float>(static_cast<int>(bits >> (8 * i) & 63) - 32);
      mins[i] = 0;
    }
  }
};
// SixBits, of the 16 bytes that a block begins with.
struct SixBitFactors {
  __device__ static void factors(const uint8_t* b, int u, float (&scales)[1], float (&mins)[1]) {
    const auto head = load_as<Vec<uint32_t, 4>>(b);
    const int at = u % 4 * 8;
    const uint32_t first = head.at[1] >> at, second = head.at[2] >> at, third = head.at[3] >> at;
    const uint32_t scale = u < 4 ? first & 63 : (third & 15) | (first >> 6 & 3) << 4;
    const uint32_t min = u < 4 ? second & 63 : (third >> 4 & 15) | (second >> 6 & 3) << 4;
    scales[0] = low_half(head.at[0]) * static_cast<float>(scale);
    mins[0] = high_half(head.at[0]) * static_cast<float>(min);
  }
};
template <>
struct BlockCodes<DType::q4_k> : SmallCodes<>, SixBitFactors {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    return four_bits_quad<DType::q4_k>(b + 16, u, c);
  }
};
template <>
struct BlockCodes<DType::q5_k> : SmallCodes<>, SixBitFactors {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    return four_bits_quad<DType::q5_k>(b + 48, u, c) | one_bit_quad<DType::q5_k>(b + 16, u, c) << 4;
  }
};
template <>
struct BlockCodes<DType::q6_k> : SmallCodes<32> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    const uint8_t* low = b + u / 4 * 64 + u % 2 * 32 + c;
    return (word_at<Block<DType::q6_k>>(low) >> (u % 4 / 2 * 4) & 0x0f0f0f0f) |
           two_bits_quad<DType::q6_k>(b + 128, u, c) << 4;
  }
  __device__ static void factors(const uint8_t* b, int u, float (&scales)[2], float (&mins)[2]) {
    const uint32_t both = load_as<uint16_t>(b + 192 + 2 * u);
    const float all = low_half(load_as<uint16_t>(b + 208));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales[i] = all * static_cast<float>(static_cast<int8_t>(both >> (8 * i)));
      mins[i] = 0;
    }
  }
};

// Four of 16 bytes, by the four bits in each byte of `places`.
__device__ inline uint32_t look_up(uint64_t first, uint64_t second, uint32_t places) {
  uint32_t by = places & 0x07070707;
  by = (by | by >> 4) & 0x00ff00ff;
  by |= by >> 8;
  const uint32_t low =
      __byte_perm(static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32), by & 0xffff);
  const uint32_t high =
      __byte_perm(static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32), by & 0xffff);
  const uint32_t from_second = (places >> 3 & 0x01010101) * 0xff;
  return low ^ ((low ^ high) & from_second);
}
// Iq4Values, with 128 added.
__device__ inline uint32_t iq4_quad(uint32_t places) {
  return look_up(0x766a5d4f3f2d1801, 0xf1d9c5b5a6998d81, places);
}
template <>
struct BlockCodes<DType::iq4_nl> : FirstIsScale, FieldCodes<Fields::bytes> {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    return iq4_quad(halves_quad<DType::iq4_nl>(b + 2, c));
  }
};
template <>
struct BlockCodes<DType::iq4_xs> : EachFactor<DType::iq4_xs>, FieldCodes<Fields::bytes, 1> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    return iq4_quad(halves_quad<DType::iq4_xs>(b + 8 + u * 16, c));
  }
};

template <>
struct BlockCodes<DType::e2m1_e8m0> : EachFactor<DType::e2m1_e8m0>, FieldCodes<Fields::twice_e2m1> {
  __device__ static uint32_t quad(const uint8_t* b, int, int c) {
    return halves_quad<DType::e2m1_e8m0>(b + 1, c);
  }
};
template <>
struct BlockCodes<DType::e2m1_e4m3> : EachFactor<DType::e2m1_e4m3>, FieldCodes<Fields::twice_e2m1> {
  __device__ static uint32_t quad(const uint8_t* b, int u, int c) {
    const uint8_t* codes = b + 4 + (u * 2 + c / 16) * 8 + c % 8;
    return word_at<Block<DType::e2m1_e4m3>>(codes) >> (c % 16 / 8 * 4) & 0x0f0f0f0f;
  }
};

// A row's units: of unit first + u, of a span that begins with unit `first`, the quad of columns c
// to c + 3, and what its groups are multiplied by.
template <class Kind>
struct Units;

template <DType kType>
struct Units<Block<kType>> {
  using Codes = BlockCodes<kType>;
  static constexpr BlockLayout kLayout = Block<kType>::kLayout;
  static constexpr Fields kFields = Codes::kFields;
  static constexpr int kMinus = Codes::kMinus, kAhead = Codes::kAhead;
  static constexpr UnitOrder kOrder = UnitOrder::by_bytes;
  static constexpr int kGroups = kUnitCols > kLayout.group_cols ? 2 : 1;  // of a unit
  static constexpr bool kMins = kLayout.mins;
  __device__ Units(const Planes& planes, int64_t at) : row(planes, at) {}
  static constexpr int kUnits = kLayout.cols / kUnitCols;
  static constexpr bool kWhole = kUnits == kUnitSpan;  // a row has whole spans
  __device__ uint32_t quad(int first, int u, int c) const {
    return Codes::quad(block(first, u), u % kUnits, c);
  }
  __device__ void factors(int first, int u, float (&scales)[kGroups],
                          float (&mins)[kGroups]) const {
    Codes::factors(block(first, u), u % kUnits, scales, mins);
  }

 private:
  __device__ const uint8_t* block(int first, int u) const {
    return row.blocks + (first / kUnits + u / kUnits) * kLayout.bytes;
  }
  Row<Block<kType>> row;
};

// Runs whose codes are floats, or places in a table; groups of 32 columns and more, or 16.
template <CodeTable kTable, int kOfUnit>
struct RunKind {};

template <CodeTable kTable, int kOfUnit>
struct Units<RunKind<kTable, kOfUnit>> {
  static constexpr Fields kFields = kTable == CodeTable::e2m1   ? Fields::e2m1
                                    : kTable == CodeTable::e4m3 ? Fields::e4m3
                                                                : Fields::own;
  static constexpr int kMinus = 0, kAhead = 4;
  static constexpr UnitOrder kOrder = UnitOrder::by_pairs;
  static constexpr int kGroups = kOfUnit;
  static constexpr bool kMins = false;
  __device__ Units(const Planes& planes, int64_t at) : row(planes, at) {}
  static constexpr bool kWhole = false;
  __device__ uint32_t quad(int first, int u, int c) const {
    if constexpr (kTable == CodeTable::e4m3) return row.words[(first + u) * 8 + c / 4];
    const uint32_t codes = row.words[(first + u) * 4 + c / 8] >> (c % 8 * 2);
    return (codes & 0x000f000f) | (codes & 0x00f000f0) << 4;
  }
  __device__ void factors(int first, int u, float (&scales)[kGroups],
                          float (&mins)[kGroups]) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int col = (first + u) * kUnitCols + i * (kUnitCols / kGroups);
      scales[i] = col < row.p.cols ? row.scale(col / row.p.group_cols) : 0;
      mins[i] = 0;
    }
  }

 private:
  Row<GroupedCodes> row;
};

// Two codes, in the bytes 0 and 2 of a word, as bf16, which has them exactly but for those of a
// table. `table`: the value of the lane's number in it.
template <Fields kFields, int kMinus>
__device__ uint32_t unit_pair(uint32_t codes, uint16_t table) {
  constexpr uint32_t k128 = 0x43004300, kMinus128 = 0xc300c300;  // whose last bits are units
  if constexpr (kFields == Fields::small)
    return bf16x2_add(codes | k128, kMinus128 | kMinus * 0x00010001u);
  if constexpr (kFields == Fields::bytes)  // 128 and seven bits, less 128 or 256
    return bf16x2_add((codes & 0x007f007f) | k128, (~codes & 0x00800080) | kMinus128);
  if constexpr (kFields == Fields::e2m1 || kFields == Fields::twice_e2m1) {
    // moved to the end of the exponent, times 2^126 or 2^127
    const uint32_t moved = (codes & 0x00070007) << 6 | (codes & 0x00080008) << 12;
    return bf16x2_mul(moved, kFields == Fields::e2m1 ? 0x7e807e80 : 0x7f007f00);
  }
  if constexpr (kFields == Fields::e4m3)  // the same, times 2^120
    return bf16x2_mul((codes & 0x007f007f) << 4 | (codes & 0x00800080) << 8, 0x7b807b80);
  const uint32_t mine = table;
  const uint32_t low = __shfl_sync(0xffffffff, mine, static_cast<int>(codes & 15));
  return low | __shfl_sync(0xffffffff, mine, static_cast<int>(codes >> 16 & 15)) << 16;
}

}  // namespace sluice::cuda
