// Grouped codes (quant/format.h) row by row, so that some rows of a matrix can be read without the
// others: codes as in the row layout, then scales, then zeros, filled up to a multiple of 4 bytes.
// Columns of an ordered weight are in its order. No checkpoint has this form: copies by rows do.
#pragma once

#include <cstdint>

#include "quant/encode.h"

namespace sluice {

// Offsets in a row [bytes].
struct GroupedRowLayout {
  int64_t scales = 0;
  int64_t zeros = 0;
  int64_t bytes = 0;  // of the whole row
};
GroupedRowLayout grouped_row_layout(const WeightFormat& format, int64_t cols);

// Row `row` of a weight in the row layout, in this form.
void take_grouped_row(const Weight& from, int64_t row, std::byte* to);

// Encodes args.rows rows, of args.source_cols columns each (0: as many as `to` has), of which
// columns [first_col, first_col + to.cols) become rows of `to` from first_row on: whole groups, or
// all of them. args.stored is DType::grouped_row. With args.order that plane is written, too.
void encode_grouped_rows(const EncodeArgs& args);
// Counts infinite and NaN scales, and codes.
EncodeStats grouped_row_stats(const EncodeArgs& args);

}  // namespace sluice
