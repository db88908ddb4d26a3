// One mixer's state of each sequence: the last inputs of a causal convolution, or the matrices of a
// recurrence. This file has the arithmetic of its rows in pages of the KV cache, for storage, ops
// and every backend.
//
// A state is [rows][cols] float32. A page holds whole rows; a state that begins inside a page goes
// on in the next one, which is a block of the next group of layers (src/kv/kv_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/units.h"

namespace sluice {

struct StateCache {
  std::byte* pages = nullptr;  // page 0
  int64_t page_bytes = 0;
  int64_t blocks = 0;     // pages that there are
  int64_t rows = 0;       // of a state
  int64_t cols = 0;       // of a row
  int64_t first_row = 0;  // place of row 0 in its page, counted in rows
  int64_t page_rows = 0;  // rows of a page
};

// Pages in which a state has rows.
inline int64_t state_pages(const StateCache& c) {
  return ceil_div(c.first_row + c.rows, c.page_rows);
}
// Returns the page that has the row.
constexpr int64_t state_page(const StateCache& c, int64_t row) {
  return (c.first_row + row) / c.page_rows;
}
// Rows from `row` on that lie one after another.
constexpr int64_t state_run(const StateCache& c, int64_t row) {
  return c.page_rows - (c.first_row + row) % c.page_rows;
}
// Floats from the begin of its page to a row.
constexpr int64_t state_offset(const StateCache& c, int64_t row) {
  return (c.first_row + row) % c.page_rows * c.cols;
}

}  // namespace sluice
