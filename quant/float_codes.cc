#include "quant/float_codes.h"

#include <algorithm>
#include <cstring>

#include "quant/groups.h"
#include "src/base/error.h"

namespace sluice {
namespace {

// The first scale of a row that the weight takes.
const std::byte* scales_row(const EncodeArgs& a, int64_t row) {
  return a.source + a.output(row) * a.source_stride + a.first_col / a.to.format.scale_cols;
}

// Eight nibbles in order, as the pairs of quant/format.h.
uint32_t paired(uint32_t word) {
  const auto half = [](uint32_t nibbles) {  // every other one
    nibbles &= 0x0f0f0f0f;
    nibbles = (nibbles | nibbles >> 4) & 0x00ff00ff;
    return (nibbles | nibbles >> 8) & 0xffff;
  };
  return half(word) | half(word >> 4) << 16;
}

void put_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t apart = packed ? kPanelRows : 1, words = to.cols / kRunCols * 4;
  const int64_t rows = packed ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = a.first_row + r;
    auto* out = reinterpret_cast<uint32_t*>(to.data) +
                (packed ? row / kPanelRows * words * kPanelRows + row % kPanelRows : row * words);
    const std::byte* from = r < a.rows ? a.row(r) : nullptr;
    for (int64_t w = 0; w < words; ++w) {
      uint32_t word = 0;
      if (from != nullptr) std::memcpy(&word, from + w * 4, sizeof word);
      out[w * apart] = paired(word);
    }
  }
}

void put_scales(const EncodeArgs& a) {
  const Weight& to = a.to;
  const int64_t groups = groups_of(to.format, to.cols);
  if (to.format.layout == WeightLayout::rows) {
    for (int64_t r = 0; r < a.rows; ++r)
      std::copy_n(scales_row(a, r), groups, to.group_scales + (a.first_row + r) * groups);
    return;
  }
  for (int64_t r = 0; r < ceil_div(a.rows, kPanelRows) * kPanelRows; ++r) {
    const int64_t row = a.first_row + r;
    std::byte* panel = to.group_scales + row / kPanelRows * groups * kPanelRows + row % kPanelRows;
    const std::byte* from = r < a.rows ? scales_row(a, r) : nullptr;
    for (int64_t g = 0; g < groups; ++g)
      panel[g * kPanelRows] = from == nullptr ? std::byte{0} : from[g];
  }
}

}  // namespace

void encode_float_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  check(to.data != nullptr && to.group_scales != nullptr, "codes and scales");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(to.cols % kRunCols == 0, "whole runs");
  check(to.format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "row groups begin a panel");
  if (a.plane == Plane::scales) return put_scales(a);
  check(a.plane == Plane::codes, "a plane of codes or scales");
  put_codes(a);
}

EncodeStats float_code_stats(const EncodeArgs& a) {
  EncodeStats stats;
  if (a.plane == Plane::codes) {
    stats.elements = a.rows * a.to.cols;
    return stats;
  }
  for (int64_t r = 0; r < a.rows; ++r) {
    const std::byte* from = scales_row(a, r);
    stats.not_finite += std::count(from, from + groups_of(a.to.format, a.to.cols), std::byte{255});
  }
  return stats;
}

}  // namespace sluice
