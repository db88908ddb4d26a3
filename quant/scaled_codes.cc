#include "quant/scaled_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "quant/float8.h"
#include "quant/groups.h"
#include "quant/not_finite.h"
#include "src/base/error.h"

namespace sluice {
namespace {

float scale_at_byte(const std::byte* from, DType stored) {
  if (stored == DType::f8_e8m0) return e8m0_to_float(std::to_integer<uint8_t>(*from));
  if (stored == DType::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return stored == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
}

// The scale of a row's group of columns.
float stored_scale(const EncodeArgs& a, int64_t row, int64_t group) {
  const int64_t source_row = a.sharing > 0 ? a.output(row) / a.sharing : 0;
  const std::byte* from =
      a.source + source_row * a.source_stride + (first_scale(a) + group) * dtype_bytes(a.stored);
  return scale_at_byte(from, a.stored);
}

void copy_scales(const EncodeArgs& a) {
  const Weight& to = a.to;
  if (to.format.scales == ScaleKind::per_row) {
    for (int64_t r = 0; r < a.rows; ++r) to.scales[a.first_row + r] = stored_scale(a, r, 0);
    const bool packed = to.format.layout == WeightLayout::packed;
    const int64_t end = packed ? round_up(a.rows, kPanelRows) : a.rows;
    std::fill(to.scales + a.first_row + a.rows, to.scales + a.first_row + end, 1.0f);
    return;
  }
  const int64_t groups = panel_scales(to.format, to.cols);
  for (int64_t r = 0; r < a.rows; r += kPanelRows) {
    float* panel = to.scales + (a.first_row + r) / kPanelRows * groups;
    for (int64_t g = 0; g < groups; ++g) panel[g] = stored_scale(a, r, g);
  }
}

// Four columns of a panel's rows: a cell (quant/format.h).
void copy_cell(const std::byte* const from[kPanelRows], int64_t rows, int64_t col, int64_t cols,
               std::byte* cell) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t pair = 0; pair < 2; ++pair) {
      const int64_t first = col + pair * 2, count = std::clamp<int64_t>(cols - first, 0, 2);
      std::byte* to = cell + r / 4 * 16 + pair * 8 + r % 4 * 2;
      if (count == 2) {
        std::memcpy(to, from[r] + first, 2);
      } else if (count == 1) {
        *to = from[r][first];
      }
    }
  }
}

// The same where all 16 rows have them, four rows at a time.
void copy_whole_cell(const std::byte* const from[kPanelRows], int64_t col, std::byte* cell) {
  for (int64_t first = 0; first < kPanelRows; first += 4) {
    uint64_t low = 0, high = 0;  // pairs of columns
    for (int r = 0; r < 4; ++r) {
      uint32_t word;
      std::memcpy(&word, from[first + r] + col, sizeof word);
      low |= uint64_t{word & 0xffff} << (16 * r);
      high |= uint64_t{word >> 16} << (16 * r);
    }
    std::memcpy(cell + first * 4, &low, sizeof low);
    std::memcpy(cell + first * 4 + 8, &high, sizeof high);
  }
}

void copy_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  if (to.format.layout == WeightLayout::rows) {
    for (int64_t r = 0; r < a.rows; ++r)
      std::copy_n(a.row(r), to.cols, to.data + (a.first_row + r) * to.cols);
    return;
  }
  for (int64_t first = 0; first < a.rows; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, a.rows - first);
    const std::byte* from[kPanelRows] = {};
    for (int64_t r = 0; r < rows; ++r) from[r] = a.row(first + r);
    std::byte* cell = to.data + element_offset(to, a.first_row + first, 0);
    const bool whole = rows == kPanelRows && to.cols % cell_cols(DType::f8_e4m3) == 0;
    if (!whole) std::fill_n(cell, panel_bytes(DType::f8_e4m3, to.cols), std::byte{0});
    for (int64_t col = 0; col < to.cols; col += cell_cols(DType::f8_e4m3), cell += kCellBytes)
      whole ? copy_whole_cell(from, col, cell) : copy_cell(from, rows, col, to.cols, cell);
  }
}

}  // namespace

int64_t first_scale(const EncodeArgs& a) {
  return a.to.format.scales == ScaleKind::per_block ? a.first_col / a.to.format.scale_cols : 0;
}

bool has_scaled_codes(const EncodeArgs& a) {
  const bool of_blocks = is_block(a.to.format.dtype) && a.plane == Plane::scales;
  return !is_grouped(a.to.format) || of_blocks;
}

void encode_scaled_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  check(to.data != nullptr && to.scales != nullptr, "codes and scales");
  check(a.first_row >= 0 && a.rows >= 0 && a.first_row + a.rows <= to.rows,
        "rows within the weight");
  const bool panels =
      to.format.layout == WeightLayout::packed || to.format.scales == ScaleKind::per_block;
  check(!panels || a.first_row % kPanelRows == 0, "row groups begin a panel");
  if (a.plane == Plane::scales) return copy_scales(a);
  check(a.plane == Plane::codes && to.format.dtype == DType::f8_e4m3 && a.stored == DType::f8_e4m3,
        "E4M3 codes");
  copy_codes(a);
}

EncodeStats scaled_code_stats(const EncodeArgs& a) {
  EncodeStats stats;
  if (a.plane == Plane::codes) {
    stats.elements = a.rows * a.to.cols;
    for (int64_t r = 0; r < a.rows; ++r)
      stats.not_finite += count_not_finite(DType::f8_e4m3, a.row(r), a.to.cols);
    return stats;
  }
  const bool by_rows = a.to.format.scales == ScaleKind::per_row;
  const int64_t groups = by_rows ? 1 : panel_scales(a.to.format, a.to.cols);
  for (int64_t r = 0; r < a.rows; r += by_rows ? 1 : kPanelRows) {
    for (int64_t g = 0; g < groups; ++g)
      if (!std::isfinite(stored_scale(a, r, g))) ++stats.not_finite;
  }
  return stats;
}

}  // namespace sluice
