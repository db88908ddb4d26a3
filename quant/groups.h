// Weights whose columns are in groups with a scale and a minimum each: grouped codes
// (quant/format.h) and the blocks of GGUF (quant/blocks.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/blocks.h"
#include "quant/float8.h"
#include "quant/format.h"

namespace sluice {

// Columns of a run of grouped codes.
inline constexpr int kRunCols = 32;

// Bits of a code that the first words of a run have; others have words of their own.
SLUICE_HD inline constexpr int low_bits(int bits) {
  if (bits == 3) return 2;
  return bits == 5 || bits == 6 ? 4 : bits;
}
// The bit, of the words that have fields of `each` bits, at which that of column c begins.
SLUICE_HD inline constexpr int run_place(int each, int c) {
  const int cols = 32 / each;
  return c / cols * 32 + c % 2 * 16 + c % cols / 2 * each;
}
// Code of column c of a run; `apart`: from one of its words to the next.
SLUICE_HD inline int run_code(const uint32_t* words, int64_t apart, int bits, int c) {
  const int low = low_bits(bits), place = run_place(low, c);
  const auto code = static_cast<int>(words[place / 32 * apart] >> place % 32 & ((1u << low) - 1));
  if (low == bits) return code;
  const int high = bits - low, upper = low * 32 + run_place(high, c);
  return code | static_cast<int>(words[upper / 32 * apart] >> upper % 32 & ((1u << high) - 1))
                    << low;
}
// Codes in order, from the lowest bits on, as a word of a run has them: of 2, 4 or 8 bits.
SLUICE_HD inline uint32_t paired_codes(uint32_t word, int bits) {
  uint32_t halves[2] = {word, word >> bits};  // every other one in its place
  for (uint32_t& half : halves) {
    if (bits == 2) {
      half &= 0x33333333;
      half |= half >> 2;
    }
    if (bits <= 4) {
      half &= 0x0f0f0f0f;
      half |= half >> 4;
    }
    half &= 0x00ff00ff;
    half = (half | half >> 8) & 0xffff;
  }
  return halves[0] | halves[1] << 16;
}
// The inverse of paired_codes, of 4 or 8 bits.
inline uint32_t ordered_codes(uint32_t word, int bits) {
  uint32_t halves[2] = {word & 0xffff, word >> 16};
  for (uint32_t& half : halves) {
    half = (half | half << 8) & 0x00ff00ff;
    if (bits == 4) half = (half | half << 4) & 0x0f0f0f0f;
  }
  return halves[0] | halves[1] << bits;
}
// Puts a code where all bits are 0.
SLUICE_HD inline void put_run_code(uint32_t* words, int64_t apart, int bits, int c, uint32_t code) {
  const int low = low_bits(bits), place = run_place(low, c);
  words[place / 32 * apart] |= (code & ((1u << low) - 1)) << place % 32;
  if (low == bits) return;
  const int upper = low * 32 + run_place(bits - low, c);
  words[upper / 32 * apart] |= (code >> low) << upper % 32;
}

inline bool is_grouped(const WeightFormat& format) {
  return format.scales == ScaleKind::grouped || is_block(format.dtype);
}
// The scales of rows that blocks have beside their own; null: none.
inline const float* row_scales(const Weight& w) {
  return w.format.scales == ScaleKind::per_row ? w.scales : nullptr;
}
// Columns that are stored together: of a block, or of a run.
int64_t block_cols(const WeightFormat& format);
int64_t block_bytes(const WeightFormat& format);
// Bytes of one row's codes.
int64_t grouped_row_bytes(const WeightFormat& format, int64_t cols);
// True where every code stands for an integer of at most 8 bits and a sign: itself, or twice a
// float of four bits. kernels/grouped_sum.h sums such codes as integers.
inline bool has_integer_codes(const WeightFormat& format) {
  return is_block(format.dtype) || format.table == CodeTable::integers ||
         format.table == CodeTable::e2m1;
}
// Columns that share a scale, groups of a row, and outer scales of a row that has its own.
int64_t group_cols(const WeightFormat& format);
int64_t groups_of(const WeightFormat& format, int64_t cols);
int64_t outers_of(const WeightFormat& format, int64_t cols);
inline bool has_zeros(const WeightFormat& format) {
  return format.table == CodeTable::integers && !format.symmetric;
}

// Returns whether groups of grouped codes may have so many columns.
inline bool is_group_size(int64_t cols) {
  return cols > 0 && (cols % kRunCols == 0 || (kRunCols % cols == 0 && cols % 8 == 0));
}

// The value of a code, but for its zero. `own`: the weight's table.
SLUICE_HD inline float code_value(CodeTable table, const float* own, int code) {
  if (table == CodeTable::integers) return static_cast<float>(code);
  if (table == CodeTable::e2m1) return e2m1_to_float(static_cast<uint32_t>(code));
  return table == CodeTable::e4m3 ? e4m3_to_float(static_cast<uint8_t>(code)) : own[code];
}
// A scale as it is stored; `own`: the weight's table of scales.
SLUICE_HD inline float stored_scale(const std::byte* scales, DType type, const float* own,
                                    int64_t at) {
  if (type == DType::f32) return reinterpret_cast<const float*>(scales)[at];
  if (type == DType::f16 || type == DType::bf16) {
    const uint16_t bits = reinterpret_cast<const uint16_t*>(scales)[at];
    return type == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
  const auto code = static_cast<uint8_t>(scales[at]);
  if (type == DType::u8) return own[code];
  return type == DType::f8_e8m0 ? e8m0_to_float(code) : e4m3_to_float(code);
}
// The weight's own values of scales among its tables.
SLUICE_HD inline const float* scale_values(const WeightFormat& format, const float* tables) {
  return tables + (format.table == CodeTable::own ? kCodeValues : 0);
}
// A zero, but for the format's base, as it is stored.
SLUICE_HD inline float stored_zero(const std::byte* zeros, DType type, int64_t at) {
  if (type == DType::u8) return static_cast<float>(static_cast<uint8_t>(zeros[at]));
  return stored_scale(zeros, type, nullptr, at);
}
SLUICE_HD inline float with_outer(float scale, Outer outer, float by) {
  if (outer == Outer::none) return scale;
  return outer == Outer::multiplies ? scale * by : scale / by;
}

// One row as the product takes it: codes [cols], and scales and minimums [groups]: value = scale *
// code - min, and a row's scale comes last. Of grouped codes min = scale * zero, or -zero if zeros
// are added. Floats of four bits are doubled and their scales halved, so that codes are integers.
// Columns are in the weight's order.
struct GroupedRow {
  float* codes = nullptr;
  float* scales = nullptr;
  float* mins = nullptr;
};
void decode_groups(const Weight& w, int64_t row, const GroupedRow& out);

// Writes the dequantized row, its columns in the order of inputs. For grouped codes value = (code -
// zero) * scale, or code * scale + zero.
void decode_grouped_row(const Weight& w, int64_t row, float* out);

}  // namespace sluice
