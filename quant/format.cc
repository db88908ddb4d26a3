#include "quant/format.h"

#include "src/base/error.h"

namespace sluice {

uint64_t weight_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (format.layout == WeightLayout::packed) {
    return static_cast<uint64_t>(ceil_div(rows, kPanelRows) * panel_bytes(format.dtype, cols));
  }
  return static_cast<uint64_t>(rows * cols * dtype_bytes(format.dtype));
}

uint64_t scale_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  int64_t panels = ceil_div(rows, kPanelRows);
  int64_t count = 0;
  switch (format.scales) {
    case ScaleKind::none:
      break;
    case ScaleKind::per_row:
      count = format.layout == WeightLayout::packed ? panels * kPanelRows : rows;
      break;
    case ScaleKind::per_block:
      count = panels * ceil_div(cols, kScaleBlock);
      break;
  }
  return static_cast<uint64_t>(count) * sizeof(float);
}

int64_t element_offset(const Weight& w, int64_t row, int64_t col) {
  DType dtype = w.format.dtype;
  int64_t bytes = dtype_bytes(dtype);
  if (w.format.layout == WeightLayout::rows) return (row * w.cols + col) * bytes;
  int64_t panel = row / kPanelRows, r = row % kPanelRows;
  int64_t cell = col / cell_cols(dtype), k = col % cell_cols(dtype);
  int64_t within = 0;
  switch (dtype) {
    case DType::f32:
      within = r * 4;
      break;
    case DType::bf16:
    case DType::f16:
      within = r * 4 + k * 2;
      break;
    case DType::i8:
      within = r * 4 + k;
      break;
    case DType::f8_e4m3:
      within = r / 4 * 16 + k / 2 * 8 + r % 4 * 2 + k % 2;
      break;
    default:
      check(false, "element type that weights do not have");
  }
  return panel * panel_bytes(dtype, w.cols) + cell * kCellBytes + within;
}

float scale_at(const Weight& w, int64_t row, int64_t col) {
  switch (w.format.scales) {
    case ScaleKind::none:
      return 1;
    case ScaleKind::per_row:
      return w.scales[row];
    case ScaleKind::per_block:
      return w.scales[row / kPanelRows * ceil_div(w.cols, kScaleBlock) + col / kScaleBlock];
  }
  return 1;
}

}  // namespace sluice
