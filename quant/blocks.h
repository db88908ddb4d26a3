// The blocks of GGUF, as ggml's source and the gguf package define them: runs of 32 to 256 columns
// of one row with codes, and a scale and perhaps a minimum for every group of columns in it.
//   value of a column = scale * code - min, in float32, the product rounded first
// Codes are integers of at most 8 bits and a sign. A scale (f16 times a small
// integer) and a minimum are exact in float32.
//
// Blocks are kept as they are stored. In the row layout a row's blocks follow one another; in the
// packed layout the blocks of a panel's 16 rows are interleaved, byte for byte the same amount:
//   words    [block bytes / 4][16 rows] of 4 bytes each; in words of codes the two bytes in the
//            middle are exchanged, so that columns k and k + 1 are the same bits of both halves
//   rest     [16 rows] of 1 or 2 bytes: the scale of blocks that are not whole words
#pragma once

#include <array>
#include <utility>

#include "quant/block_layout.h"
#include "quant/table_blocks.h"

namespace sluice {

template <>
struct Block<DType::q4_0> {
  static constexpr BlockLayout kLayout{32, 18, 32, false, true, 0, 4, 8, 8};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return (b[2 + c % 16] >> (c / 16 * 4) & 15) - 8;
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

template <>
struct Block<DType::q4_1> {
  static constexpr BlockLayout kLayout{32, 20, 32, true, false, 1, 4, 0, 15};
  SLUICE_HD static int code(const uint8_t* b, int c) { return b[4 + c % 16] >> (c / 16 * 4) & 15; }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
  SLUICE_HD static float min(const uint8_t* b, int) { return -f16_at(b + 2); }
};

template <>
struct Block<DType::q5_0> {
  static constexpr BlockLayout kLayout{32, 22, 32, false, true, 1, 4, 16, 16};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return ((b[6 + c % 16] >> (c / 16 * 4) & 15) | (b[2 + c / 8] >> (c % 8) & 1) << 4) - 16;
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

template <>
struct Block<DType::q5_1> {
  static constexpr BlockLayout kLayout{32, 24, 32, true, false, 2, 4, 0, 31};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return (b[8 + c % 16] >> (c / 16 * 4) & 15) | (b[4 + c / 8] >> (c % 8) & 1) << 4;
  }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
  SLUICE_HD static float min(const uint8_t* b, int) { return -f16_at(b + 2); }
};

template <>
struct Block<DType::q8_0> {
  static constexpr BlockLayout kLayout{32, 34, 32, false, true, 0, 8, 128, 128};
  SLUICE_HD static int code(const uint8_t* b, int c) { return static_cast<int8_t>(b[2 + c]); }
  SLUICE_HD static float scale(const uint8_t* b, int) { return f16_at(b); }
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

// 16 groups: bytes of a scale (low nibble) and a minimum; 2-bit codes; d and dmin last.
template <>
struct Block<DType::q2_k> {
  static constexpr BlockLayout kLayout{256, 84, 16, true, false, 4, 16, 0, 3};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return b[16 + c / 128 * 32 + c % 32] >> (c % 128 / 32 * 2) & 3;
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b + 80) * static_cast<float>(b[g] & 15);
  }
  SLUICE_HD static float min(const uint8_t* b, int g) {
    return f16_at(b + 82) * static_cast<float>(b[g] >> 4);
  }
};

// High bits, low two bits, 16 scales of 6 bits (less 32), d.
template <>
struct Block<DType::q3_k> {
  static constexpr BlockLayout kLayout{256, 110, 16, false, false, 0, 24, 4, 4};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int low = b[32 + c / 128 * 32 + c % 32] >> (c % 128 / 32 * 2) & 3;
    return low + (b[c % 32] >> (c / 32) & 1) * 4 - 4;
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    const int low = b[96 + g % 8] >> (g / 8 * 4) & 15, high = b[104 + g % 4] >> (g / 4 * 2) & 3;
    return f16_at(b + 108) * static_cast<float>((low | high << 4) - 32);
  }
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

// The 6-bit scales and minimums of Q4_K and Q5_K: 8 of each in 12 bytes.
struct SixBits {
  SLUICE_HD static int scale(const uint8_t* b, int g) {
    return g < 4 ? b[g] & 63 : (b[g + 4] & 15) | (b[g - 4] >> 6) << 4;
  }
  SLUICE_HD static int min(const uint8_t* b, int g) {
    return g < 4 ? b[g + 4] & 63 : b[g + 4] >> 4 | (b[g] >> 6) << 4;
  }
};

template <>
struct Block<DType::q4_k> {
  static constexpr BlockLayout kLayout{256, 144, 32, true, false, 4, 32, 0, 15};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    return b[16 + c / 64 * 32 + c % 32] >> (c % 64 / 32 * 4) & 15;
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b) * static_cast<float>(SixBits::scale(b + 4, g));
  }
  SLUICE_HD static float min(const uint8_t* b, int g) {
    return f16_at(b + 2) * static_cast<float>(SixBits::min(b + 4, g));
  }
};

template <>
struct Block<DType::q5_k> {
  static constexpr BlockLayout kLayout{256, 176, 32, true, false, 4, 40, 0, 31};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int low = b[48 + c / 64 * 32 + c % 32] >> (c % 64 / 32 * 4) & 15;
    return low | (b[16 + c % 32] >> (c / 32) & 1) << 4;
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) { return Block<DType::q4_k>::scale(b, g); }
  SLUICE_HD static float min(const uint8_t* b, int g) { return Block<DType::q4_k>::min(b, g); }
};

// Low nibbles, high two bits, 16 scales of 8 bits, d.
template <>
struct Block<DType::q6_k> {
  static constexpr BlockLayout kLayout{256, 210, 16, false, false, 0, 48, 32, 32};
  SLUICE_HD static int code(const uint8_t* b, int c) {
    const int low = b[c / 128 * 64 + c % 64] >> (c % 128 / 64 * 4) & 15;
    const int high = b[128 + c / 128 * 32 + c % 32] >> (c % 128 / 32 * 2) & 3;
    return (low | high << 4) - 32;
  }
  SLUICE_HD static float scale(const uint8_t* b, int g) {
    return f16_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + g]));
  }
  SLUICE_HD static float min(const uint8_t*, int) { return 0; }
};

// Returns whether weights of the type are kept as blocks.
constexpr bool is_block(DType type) { return type >= kFirstBlockType && type <= kLastBlockType; }

// Calls body(Block<type>()); false for a type that is not kept as blocks.
template <class Body>
constexpr bool with_block(DType type, Body&& body) {
  constexpr int kFirst = static_cast<int>(kFirstBlockType);
  constexpr int kLast = static_cast<int>(kLastBlockType);
  return [&]<int... kPlaces>(std::integer_sequence<int, kPlaces...>) {
    return ((type == static_cast<DType>(kFirst + kPlaces) &&
             (body(Block<static_cast<DType>(kFirst + kPlaces)>()), true)) ||
            ...);
  }(std::make_integer_sequence<int, kLast - kFirst + 1>());
}
constexpr BlockLayout block_layout(DType type) {
  BlockLayout layout;
  with_block(type, [&](auto block) { layout = decltype(block)::kLayout; });
  return layout;
}

// Tables in which SIMD code looks codes up; null where a type has none.
struct BlockTables {
  const uint16_t* grid = nullptr;   // quant/grids.h
  const int16_t* values = nullptr;  // [64], codes by their index (quant/table_blocks.h)
};
BlockTables block_tables(DType type);

// Blocks of a panel of the packed layout: those of 16 rows (null: zeros), which lie one after
// another in each, into `to`; and one row's of one block back.
void interleave_blocks(DType type, const std::array<const uint8_t*, 16>& rows, int64_t blocks,
                       uint8_t* to);
void take_block(DType type, const uint8_t* interleaved, int row, uint8_t* to);

}  // namespace sluice
