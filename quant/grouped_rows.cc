#include "quant/grouped_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/float8.h"
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// The parts of a source row that a weight takes.
struct Parts {
  explicit Parts(const EncodeArgs& a)
      : row(grouped_row_layout(a.to.format, a.cols())),
        codes(grouped_row_bytes(a.to.format, a.first_col)),
        first_group(a.first_col / a.to.format.scale_cols),
        code_bytes(grouped_row_bytes(a.to.format, a.to.cols)),
        groups(groups_of(a.to.format, a.to.cols)) {}
  GroupedRowLayout row;
  int64_t codes, first_group;
  int64_t code_bytes, groups;
};

// Word i of each of the panel's rows, side by side.
void encode_panel(const EncodeArgs& a, const Parts& parts, int64_t first, int64_t rows) {
  const Weight& to = a.to;
  const int64_t words = parts.code_bytes / 4;
  const int64_t panel = (a.first_row + first) / kPanelRows;
  std::byte* codes = to.data + panel * words * 4 * kPanelRows;
  std::byte* scales = to.group_scales + panel * parts.groups * 2 * kPanelRows;
  uint8_t* zeros = to.zeros + panel * parts.groups * kPanelRows;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const std::byte* from = r < rows ? a.row(first + r) : nullptr;
    for (int64_t i = 0; i < words; ++i) {
      uint32_t word = 0;
      if (from != nullptr) std::memcpy(&word, from + parts.codes + i * 4, sizeof word);
      std::memcpy(codes + (i * kPanelRows + r) * 4, &word, sizeof word);
    }
    for (int64_t g = 0; g < parts.groups; ++g) {
      const int64_t group = parts.first_group + g, at = g * kPanelRows + r;
      uint16_t scale = 0;
      if (from != nullptr) std::memcpy(&scale, from + parts.row.scales + group * 2, sizeof scale);
      std::memcpy(scales + at * 2, &scale, sizeof scale);
      zeros[at] =
          from == nullptr ? uint8_t{0} : std::to_integer<uint8_t>(from[parts.row.zeros + group]);
    }
  }
}

void check_rows(const EncodeArgs& a) {
  const Weight& to = a.to;
  check(a.stored == DType::grouped_row && to.format.scales == ScaleKind::grouped, "grouped rows");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(to.format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0, "whole panels");
  check(a.first_col + to.cols <= a.cols(), "columns within the source");
  check(to.cols == a.cols() || (a.first_col % to.format.scale_cols == 0 && a.order == nullptr),
        "whole groups");
}

}  // namespace

GroupedRowLayout grouped_row_layout(const WeightFormat& format, int64_t cols) {
  const int64_t codes = grouped_row_bytes(format, cols), groups = groups_of(format, cols);
  return {
      .scales = codes, .zeros = codes + 2 * groups, .bytes = ceil_div(codes + 3 * groups, 4) * 4};
}

void take_grouped_row(const Weight& from, int64_t row, std::byte* to) {
  const GroupedRowLayout at = grouped_row_layout(from.format, from.cols);
  const int64_t groups = groups_of(from.format, from.cols);
  std::fill_n(to, at.bytes, std::byte{0});
  std::copy_n(from.data + row * at.scales, at.scales, to);
  std::copy_n(from.group_scales + row * groups * 2, groups * 2, to + at.scales);
  std::memcpy(to + at.zeros, from.zeros + row * groups, static_cast<size_t>(groups));
}

void encode_grouped_rows(const EncodeArgs& a) {
  check_rows(a);
  const Parts parts(a);
  if (a.order != nullptr) std::copy_n(a.order, a.to.cols, a.to.order);
  if (a.to.format.layout == WeightLayout::packed) {
    for (int64_t r = 0; r < a.rows; r += kPanelRows)
      encode_panel(a, parts, r, std::min(kPanelRows, a.rows - r));
    return;
  }
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t row = a.first_row + r;
    const std::byte* from = a.row(r);
    std::copy_n(from + parts.codes, parts.code_bytes, a.to.data + row * parts.code_bytes);
    std::copy_n(from + parts.row.scales + parts.first_group * 2, parts.groups * 2,
                a.to.group_scales + row * parts.groups * 2);
    std::memcpy(a.to.zeros + row * parts.groups, from + parts.row.zeros + parts.first_group,
                static_cast<size_t>(parts.groups));
  }
}

EncodeStats grouped_row_stats(const EncodeArgs& a) {
  const Parts parts(a);
  EncodeStats stats{.elements = a.rows * a.to.cols};
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t g = 0; g < parts.groups; ++g) {
      uint16_t bits;
      std::memcpy(&bits, a.row(r) + parts.row.scales + (parts.first_group + g) * 2, sizeof bits);
      const float scale =
          a.to.format.scale_type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
      if (!std::isfinite(scale)) ++stats.not_finite;
    }
  }
  return stats;
}

}  // namespace sluice
