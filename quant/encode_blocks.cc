#include "quant/encode_blocks.h"

#include <algorithm>
#include <cmath>

#include "quant/groups.h"
#include "src/base/error.h"

namespace sluice {
namespace {

const uint8_t* row_of(const EncodeArgs& a, int64_t row) {
  return reinterpret_cast<const uint8_t*>(a.row(row));
}

}  // namespace

void check_blocks(const EncodeArgs& a) {
  const Weight& to = a.to;
  check(to.format.dtype == a.stored && to.data != nullptr, "blocks stay what they are");
  check(to.cols % block_cols(to.format) == 0, "whole blocks");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(to.format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "row groups begin a panel");
}

std::array<const uint8_t*, kPanelRows> panel_of_blocks(const EncodeArgs& a, int64_t first) {
  std::array<const uint8_t*, kPanelRows> rows{};
  for (int64_t r = first; r < std::min(first + kPanelRows, a.rows); ++r)
    rows[static_cast<size_t>(r - first)] = row_of(a, r);
  return rows;
}

int64_t not_finite_cols(DType type, const uint8_t* row, int64_t blocks) {
  int64_t cols = 0;
  with_block(type, [&]<class Kind>(Kind) {
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block = row + b * Kind::kLayout.bytes;
      if (!std::isfinite(Kind::scale(block, 0) + Kind::min(block, 0))) cols += Kind::kLayout.cols;
    }
  });
  return cols;
}

void encode_blocks(const EncodeArgs& a) {
  check_blocks(a);
  const WeightFormat& format = a.to.format;
  const int64_t row_bytes = grouped_row_bytes(format, a.to.cols), bytes = block_bytes(format);
  auto* to = reinterpret_cast<uint8_t*>(a.to.data) + a.first_row * row_bytes;
  if (format.layout == WeightLayout::rows) {
    for (int64_t r = 0; r < a.rows; ++r) std::copy_n(row_of(a, r), row_bytes, to + r * row_bytes);
    return;
  }
  for (int64_t first = 0; first < a.rows; first += kPanelRows, to += row_bytes * kPanelRows)
    interleave_blocks(format.dtype, panel_of_blocks(a, first), row_bytes / bytes, to);
}

EncodeStats block_stats(const EncodeArgs& a) {
  const int64_t blocks = a.to.cols / block_cols(a.to.format);
  EncodeStats stats;
  stats.elements = a.rows * a.to.cols;
  for (int64_t r = 0; r < a.rows; ++r)
    stats.not_finite += not_finite_cols(a.stored, row_of(a, r), blocks);
  return stats;
}

}  // namespace sluice
