// Weights whose columns are in groups with a scale and a minimum each: grouped codes
// (quant/format.h) and the blocks of GGUF (quant/blocks.h).
#pragma once

#include <cstdint>

#include "quant/blocks.h"
#include "quant/format.h"

namespace sluice {

// Columns of a run of grouped codes.
inline constexpr int kRunCols = 32;

// Code of column c of a run; `apart`: from one of its words to the next.
SLUICE_HD inline int run_code(const uint32_t* words, int64_t apart, int bits, int c) {
  const int each = bits == 3 ? 2 : bits, cols = 32 / each;
  const int at = c % 2 * 16 + c % cols / 2 * each;
  const int low = static_cast<int>(words[c / cols * apart] >> at & ((1u << each) - 1));
  if (bits != 3) return low;
  return low | static_cast<int>(words[2 * apart] >> (c % 2 * 16 + c / 2) & 1) << 2;
}
// Puts a code where all bits are 0.
SLUICE_HD inline void put_run_code(uint32_t* words, int64_t apart, int bits, int c, uint32_t code) {
  const int each = bits == 3 ? 2 : bits, cols = 32 / each;
  words[c / cols * apart] |= (code & ((1u << each) - 1)) << (c % 2 * 16 + c % cols / 2 * each);
  if (bits == 3) words[2 * apart] |= (code >> 2) << (c % 2 * 16 + c / 2);
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
// Columns that share a scale, and groups of a row.
int64_t group_cols(const WeightFormat& format);
int64_t groups_of(const WeightFormat& format, int64_t cols);

// One row as the product takes it: codes [cols], and scales and minimums [groups]: value = scale *
// code - min; of blocks with a scale of the row it comes last, and is not in here. For grouped
// codes min = scale * zero. Columns are in the weight's order.
struct GroupedRow {
  float* codes = nullptr;
  float* scales = nullptr;
  float* mins = nullptr;
};
void decode_groups(const Weight& w, int64_t row, const GroupedRow& out);

// Writes the dequantized row, its columns in the order of inputs. For grouped codes value = (code -
// zero) * scale.
void decode_grouped_row(const Weight& w, int64_t row, float* out);

}  // namespace sluice
