#include "quant/format.h"

#include "src/base/error.h"

namespace sluice {

namespace {

constexpr uint64_t kPlaneAlignment = 64;

uint64_t codes_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (format.layout == WeightLayout::packed) {
    return static_cast<uint64_t>(ceil_div(rows, kPanelRows) * panel_bytes(format.dtype, cols));
  }
  return static_cast<uint64_t>(rows * cols * dtype_bytes(format.dtype));
}

}  // namespace

int64_t panel_scales(const WeightFormat& format, int64_t cols) {
  switch (format.scales) {
    case ScaleKind::none:
      break;
    case ScaleKind::per_row:
      return kPanelRows;
    case ScaleKind::per_block:
      return ceil_div(cols, format.scale_cols);
  }
  return 0;
}

uint64_t plane_bytes(const WeightFormat& format, Plane plane, int64_t rows, int64_t cols) {
  if (plane == Plane::codes) return codes_bytes(format, rows, cols);
  const bool plain = format.layout == WeightLayout::rows && format.scales == ScaleKind::per_row;
  int64_t count = plain ? rows : ceil_div(rows, kPanelRows) * panel_scales(format, cols);
  return static_cast<uint64_t>(count) * sizeof(float);
}

uint64_t weight_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  uint64_t sum = 0;
  for (Plane plane : kPlanes) sum += plane_bytes(format, plane, rows, cols);
  return sum;
}

uint64_t storage_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  uint64_t sum = 0;
  for (Plane plane : kPlanes)
    sum += round_up(plane_bytes(format, plane, rows, cols), kPlaneAlignment);
  return sum;
}

std::byte* Weight::plane(Plane which) const {
  return which == Plane::codes ? data : reinterpret_cast<std::byte*>(scales);
}

Weight weight_in(const WeightFormat& format, int64_t rows, int64_t cols, std::byte* storage) {
  Weight w{format, rows, cols, storage, nullptr};
  const uint64_t codes = plane_bytes(format, Plane::codes, rows, cols);
  if (format.scales != ScaleKind::none)
    w.scales = reinterpret_cast<float*>(storage + round_up(codes, kPlaneAlignment));
  return w;
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
      return w
          .scales[row / kPanelRows * panel_scales(w.format, w.cols) + col / w.format.scale_cols];
  }
  return 1;
}

}  // namespace sluice
