#include "quant/format.h"

#include "quant/blocks.h"
#include "quant/groups.h"
#include "quant/matrix_layout.h"
#include "src/base/error.h"

namespace sluice {

namespace {

constexpr uint64_t kPlaneAlignment = 64;

uint64_t codes_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (is_grouped(format)) {
    const bool packed = format.layout == WeightLayout::packed;
    return static_cast<uint64_t>((packed ? ceil_div(rows, kPanelRows) * kPanelRows : rows) *
                                 grouped_row_bytes(format, cols));
  }
  if (format.layout == WeightLayout::packed) {
    return static_cast<uint64_t>(ceil_div(rows, kPanelRows) * panel_bytes(format.dtype, cols));
  }
  return static_cast<uint64_t>(rows * cols * dtype_bytes(format.dtype));
}

}  // namespace

WeightLayout layout_of(MatrixLayout device, const WeightFormat& format) {
  if (device == MatrixLayout::packed) return WeightLayout::packed;
  if (device == MatrixLayout::rows) return WeightLayout::rows;
  const bool panels =
      !is_grouped(format) &&
      (format.dtype == DType::bf16 || format.dtype == DType::f8_e4m3 || format.dtype == DType::i8);
  return panels ? WeightLayout::packed : WeightLayout::rows;
}

WeightFormat with_layout(MatrixLayout device, WeightFormat format) {
  format.layout = layout_of(device, format);
  return format;
}

bool can_round_inputs(MatrixLayout device, const WeightFormat& format) {
  return device == MatrixLayout::packed && is_grouped(format) && has_integer_codes(format);
}

int64_t panel_scales(const WeightFormat& format, int64_t cols) {
  switch (format.scales) {
    case ScaleKind::none:
      break;
    case ScaleKind::per_row:
      return kPanelRows;
    case ScaleKind::per_block:
      return ceil_div(cols, format.scale_cols);
    case ScaleKind::grouped:
      return kPanelRows * ceil_div(cols, format.scale_cols);
  }
  return 0;
}

namespace {

uint64_t outers_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (format.outer == Outer::none) return 0;
  const int64_t panels = ceil_div(rows, kPanelRows), each = outers_of(format, cols);
  const bool packed = format.layout == WeightLayout::packed;
  const int64_t count = format.outer_groups == 0 ? panels
                        : packed                 ? panels * kPanelRows * each
                                                 : rows * each;
  return static_cast<uint64_t>(count) * sizeof(float);
}

uint64_t tables_bytes(const WeightFormat& format) {
  const int64_t codes = format.table == CodeTable::own ? kCodeValues : 0;
  const bool scales = format.scales == ScaleKind::grouped && format.scale_type == DType::u8;
  return static_cast<uint64_t>(codes + (scales ? kScaleValues + 1 : 0)) * sizeof(float);
}

}  // namespace

uint64_t plane_bytes(const WeightFormat& format, Plane plane, int64_t rows, int64_t cols) {
  if (plane == Plane::codes) return codes_bytes(format, rows, cols);
  if (plane == Plane::outers) return outers_bytes(format, rows, cols);
  if (plane == Plane::tables) return tables_bytes(format);
  const bool grouped = format.scales == ScaleKind::grouped;
  if (plane == Plane::order)
    return format.ordered ? static_cast<uint64_t>(cols) * sizeof(int32_t) : 0;
  if (plane == Plane::zeros && (!grouped || !has_zeros(format))) return 0;
  const bool by_panels =
      format.layout == WeightLayout::packed || format.scales == ScaleKind::per_block;
  const int64_t panel = panel_scales(format, cols);
  const int64_t count =
      by_panels ? ceil_div(rows, kPanelRows) * panel : rows * (panel / kPanelRows);
  if (plane == Plane::zeros) return static_cast<uint64_t>(count * dtype_bytes(format.zero_type));
  return static_cast<uint64_t>(count * dtype_bytes(format.scale_type));
}

uint64_t plane_offset(const WeightFormat& format, Plane plane, int64_t row, int64_t cols) {
  const bool has_rows = plane != Plane::order && plane != Plane::tables;
  return has_rows ? plane_bytes(format, plane, row, cols) : 0;
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
  switch (which) {
    case Plane::codes:
      return data;
    case Plane::scales:
      return group_scales != nullptr ? group_scales : reinterpret_cast<std::byte*>(scales);
    case Plane::zeros:
      return zeros;
    case Plane::order:
      return reinterpret_cast<std::byte*>(order);
    case Plane::outers:
      return reinterpret_cast<std::byte*>(outers);
    case Plane::tables:
      return reinterpret_cast<std::byte*>(tables);
  }
  return nullptr;
}

Weight weight_in(const WeightFormat& format, int64_t rows, int64_t cols, std::byte* storage) {
  Weight w{.format = format, .rows = rows, .cols = cols, .data = storage};
  uint64_t at = 0;
  const auto next = [&](Plane plane) -> std::byte* {
    const uint64_t bytes = plane_bytes(format, plane, rows, cols);
    std::byte* begin = bytes > 0 ? storage + at : nullptr;
    at += round_up(bytes, kPlaneAlignment);
    return begin;
  };
  next(Plane::codes);
  std::byte* scales = next(Plane::scales);
  if (format.scales == ScaleKind::grouped) {
    w.group_scales = scales;
  } else {
    w.scales = reinterpret_cast<float*>(scales);
  }
  w.zeros = next(Plane::zeros);
  w.order = reinterpret_cast<int32_t*>(next(Plane::order));
  w.outers = reinterpret_cast<float*>(next(Plane::outers));
  w.tables = reinterpret_cast<float*>(next(Plane::tables));
  return w;
}

Weight rows_from(Weight weight, int64_t first) {
  auto offset = [&](Plane plane) { return plane_offset(weight.format, plane, first, weight.cols); };
  if (first == 0) return weight;
  weight.rows -= first;
  weight.data += offset(Plane::codes);
  if (weight.scales != nullptr) weight.scales += offset(Plane::scales) / sizeof(float);
  if (weight.group_scales != nullptr) weight.group_scales += offset(Plane::scales);
  if (weight.zeros != nullptr) weight.zeros += offset(Plane::zeros);
  if (weight.outers != nullptr) weight.outers += offset(Plane::outers) / sizeof(float);
  return weight;
}

int64_t element_offset(const Weight& w, int64_t row, int64_t col) {
  check(!is_grouped(w.format), "elements of whole bytes");
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
    case ScaleKind::grouped:
      break;  // quant/groups.h
  }
  return 1;
}

}  // namespace sluice
