// The order of columns of grouped codes. Where a file's rows are inputs, each read has a part of
// every output, and the columns of a weight (WeightFormat::ordered) can only change places when all
// have come. This is the reference; kernels/cpu/simd/order_codes.cc has the fast one.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace sluice {

// Words of an output's codes, at most: as many are copied while they change places.
inline constexpr int64_t kMostOrderedWords = 65536;

// Outputs whose columns change places together, in their place: a panel's, or one alone.
struct OrderCodesJob {
  uint32_t* words = nullptr;       // [cols / 32][bits][outputs]: runs (quant/format.h)
  int64_t outputs = kPanelRows;    // or 1
  int64_t cols = 0;                // whole runs; cols * bits / 32 <= kMostOrderedWords
  int bits = 0;                    // of a code: 1 to 6, or 8
  const int32_t* order = nullptr;  // [cols]: the column that comes to each place
};
using OrderCodes = void(const OrderCodesJob& job);

void order_codes(const OrderCodesJob& job);

// Brings the columns of rows [first_row, first_row + rows), which are in the order of inputs, into
// that of the weight, and writes it: column k becomes what column order[k] was. In the packed
// layout first_row begins a panel. `each` orders the codes.
void order_columns(const Weight& to, int64_t first_row, int64_t rows, const int32_t* order,
                   OrderCodes* each);

}  // namespace sluice
