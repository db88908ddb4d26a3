#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/blocks.h"
#include "quant/encode_blocks.h"
#include "quant/encode_groups.h"
#include "quant/float8.h"
#include "quant/grouped_columns.h"
#include "quant/groups.h"
#include "quant/row_codes.h"
#include "quant/scaled_codes.h"
#include "src/base/error.h"

namespace sluice {
namespace {

constexpr float kI8Max = 127;

uint16_t load_u16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float load_f32(const std::byte* p) {
  float v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Torch, too, rounds a double to float32 before anything else.
float load_f64(const std::byte* p) {
  double v;
  std::memcpy(&v, p, sizeof v);
  return static_cast<float>(v);
}

template <class Integer>
float load_integer(const std::byte* p) {
  Integer v;
  std::memcpy(&v, p, sizeof v);
  return static_cast<float>(v);
}

float load_element(const std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return load_f64(p);
    case DType::f32:
      return load_f32(p);
    case DType::f16:
      return f16_to_float(load_u16(p));
    case DType::bf16:
      return bf16_to_float(load_u16(p));
    case DType::f8_e4m3:
      return e4m3_to_float(std::to_integer<uint8_t>(*p));
    case DType::i8:
      return static_cast<float>(std::to_integer<int>(*p) - 128);
    case DType::i64:
      return load_integer<int64_t>(p);
    case DType::i32:
      return load_integer<int32_t>(p);
    default:
      check(false, "element type that weights do not have");
      return 0;
  }
}

void store_element(std::byte* p, DType dtype, float x) {
  uint16_t half = 0;
  switch (dtype) {
    case DType::f32:
      std::memcpy(p, &x, sizeof x);
      return;
    case DType::f16:
      half = float_to_f16(x);
      std::memcpy(p, &half, sizeof half);
      return;
    case DType::bf16:
      half = float_to_bf16(x);
      std::memcpy(p, &half, sizeof half);
      return;
    case DType::f8_e4m3:
      *p = std::byte{float_to_e4m3(x)};
      return;
    case DType::i8:
      x = std::isnan(x) ? 0 : std::nearbyint(std::clamp(x, -kI8Max, kI8Max));
      *p = static_cast<std::byte>(static_cast<int>(x) + 128);
      return;
    default:
      check(false, "element type that weights do not have");
  }
}

float load_source(const EncodeArgs& a, int64_t row, int64_t col) {
  return load_element(a.row(row) + col * a.element_stride(), a.stored);
}

// Largest finite |x| of a rectangle of the source.
float amax_of(const EncodeArgs& a, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  float amax = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = col; c < col + cols; ++c) {
      float x = load_source(a, r, c);
      if (std::isfinite(x)) amax = std::max(amax, std::abs(x));
    }
  }
  return amax;
}

void write_row_scales(const EncodeArgs& a) {
  if (a.first_col > 0) return;
  float* scales = a.to.scales + a.first_row;
  for (int64_t r = 0; r < a.rows; ++r) {
    float amax = a.group == ScaleGroup::tensor ? a.tensor_amax : 0;
    if (a.group == ScaleGroup::row && a.row_scales == nullptr) amax = amax_of(a, r, 1, 0, a.cols());
    scales[r] = a.row_scales ? a.row_scales[r] : code_scale(a.to.format.dtype, amax);
  }
  const bool packed = a.to.format.layout == WeightLayout::packed;
  const int64_t end = packed ? round_up(a.rows, kPanelRows) : a.rows;
  std::fill(scales + a.rows, scales + end, 1.0f);
}

void write_block_scales(const EncodeArgs& a) {
  const int64_t blocks = panel_scales(a.to.format, a.to.cols), wide = a.to.format.scale_cols;
  for (int64_t row = 0; row < a.rows; row += kScaleBlock) {
    for (int64_t col = 0; col < a.cols(); col += wide) {
      int64_t rows = std::min(kScaleBlock, a.rows - row);
      int64_t cols = std::min(wide, a.cols() - col);
      float scale = code_scale(a.to.format.dtype, amax_of(a, row, rows, col, cols));
      for (int64_t r = row; r < row + rows; r += kPanelRows) {
        int64_t panel = (a.first_row + r) / kPanelRows;
        a.to.scales[panel * blocks + (a.first_col + col) / wide] = scale;
      }
    }
  }
}

// Fills the scales of every row or panel that the group covers, padding included.
void write_scales(const EncodeArgs& a) {
  if (a.group == ScaleGroup::none) return;
  a.group == ScaleGroup::block ? write_block_scales(a) : write_row_scales(a);
}

// Zeros in all cells that the source's columns lie in.
void clear_cells(const EncodeArgs& a) {
  const DType dtype = a.to.format.dtype;
  const int64_t cells = ceil_div(a.cols(), cell_cols(dtype));
  for (int64_t r = 0; r < a.rows; r += kPanelRows) {
    std::memset(a.to.data + element_offset(a.to, a.first_row + r, a.first_col),
                dtype == DType::i8 ? 128 : 0, static_cast<size_t>(cells * kCellBytes));
  }
}

// Larger, where both are not negative; other threads may do the same.
void raise(float& at, float value) {
  std::atomic_ref<float> shared(at);
  float now = shared.load(std::memory_order_relaxed);
  while (now < value && !shared.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

// add_row_amax where an element lies beside that of the next row. Magnitudes are ordered as their
// bits are, up to `infinity`.
template <class Bits>
void add_neighbours_amax(const EncodeArgs& a, Bits infinity, float* amax) {
  constexpr int64_t kSliceRows = 64;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  for (int64_t first = 0; first < a.rows; first += kSliceRows) {
    const int64_t rows = std::min(kSliceRows, a.rows - first);
    std::array<Bits, kSliceRows> largest{}, column{};
    for (int64_t c = 0; c < a.cols(); ++c) {
      std::memcpy(column.data(), a.row(first) + c * a.element_stride(),
                  static_cast<size_t>(rows) * sizeof(Bits));
      for (size_t r = 0; r < kSliceRows; ++r) {
        Bits bits = column[r] & kMagnitude;
        bits = bits < infinity ? bits : Bits{0};
        largest[r] = largest[r] > bits ? largest[r] : bits;
      }
    }
    for (int64_t r = 0; r < rows; ++r)
      raise(amax[first + r],
            load_element(reinterpret_cast<const std::byte*>(&largest[static_cast<size_t>(r)]),
                         a.stored));
  }
}

}  // namespace

void EncodeStats::add(const EncodeStats& other) {
  error_squares += other.error_squares;
  value_squares += other.value_squares;
  max_error = std::max(max_error, other.max_error);
  not_finite += other.not_finite;
  elements += other.elements;
}

void check_encode(const EncodeArgs& a) {
  const Weight& to = a.to;
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t row_bytes = a.cols() * dtype_bytes(a.stored);
  check(is_float_weight(a.stored) || (is_integer_vector(a.stored) && to.format.dtype == DType::f32),
        "source elements of f64, f32, f16 or bf16, or integers that become f32");
  check(to.data != nullptr && a.rows >= 0 && to.cols >= 0, "a weight with storage");
  const bool together = a.columns_lie_together();
  check(a.rows <= 1 || !together || a.source_stride >= row_bytes, "source rows do not overlap");
  check(a.first_col >= 0 && a.first_col + a.cols() <= to.cols, "columns within the weight");
  const int64_t unit = a.group == ScaleGroup::block ? to.format.scale_cols : cell_cols(DType::i8);
  const bool to_the_end = a.first_col + a.cols() == to.cols;
  check(a.first_col % unit == 0 && (to_the_end || a.cols() % unit == 0), "whole cells, or blocks");
  check(a.group != ScaleGroup::row || a.row_scales || (together && a.cols() == to.cols),
        "scales of rows that are not seen at once");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(!packed || to.rows % kPanelRows == 0, "packed weights have whole panels");
  if (packed || a.group == ScaleGroup::block) {
    check(a.first_row % kPanelRows == 0, "row groups begin a panel");
  }
  const ScaleKind scales = a.group == ScaleGroup::none    ? ScaleKind::none
                           : a.group == ScaleGroup::block ? ScaleKind::per_block
                                                          : ScaleKind::per_row;
  check(to.format.scales == scales, "scales as the group has them");
  if (a.group == ScaleGroup::none) {
    const DType kept = to.format.dtype;
    check(is_float_weight(kept) && kept == kept_dtype(kept), "weights of f32, f16 or bf16");
  } else {
    const bool codes = to.format.dtype == DType::f8_e4m3 || to.format.dtype == DType::i8;
    check(codes && to.scales != nullptr, "codes and scales");
  }
}

float code_scale(DType codes, float amax) {
  const bool integers = codes == DType::i8 || codes == DType::u8;
  const float largest = integers ? kI8Max : codes == DType::f8_e5m2 ? kE5M2Max : kE4M3Max;
  float scale = amax / largest;
  return scale > 0 ? scale : 1.0f;
}

float absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                   int64_t cols) {
  float amax = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      float x = load_element(source + r * source_stride + c * dtype_bytes(stored), stored);
      if (std::isfinite(x)) amax = std::max(amax, std::abs(x));
    }
  }
  return amax;
}

void add_row_amax(const EncodeArgs& a, float* amax) {
  if (a.source_stride == dtype_bytes(a.stored) && a.run_rows == 0) {
    if (a.stored == DType::bf16) return add_neighbours_amax<int16_t>(a, 0x7f80, amax);
    if (a.stored == DType::f16) return add_neighbours_amax<int16_t>(a, 0x7c00, amax);
    if (a.stored == DType::f32) return add_neighbours_amax<int32_t>(a, 0x7f800000, amax);
  }
  for (int64_t r = 0; r < a.rows; ++r) raise(amax[r], amax_of(a, r, 1, 0, a.cols()));
}

bool is_quantized(const EncodeArgs& a) {
  if (makes_groups(a)) return false;
  return is_grouped(a.to.format) || a.plane != Plane::codes || a.stored == DType::f8_e4m3;
}

EncodeStats encode_quantized(const EncodeArgs& a, PackCodes* pack) {
  if (has_scaled_codes(a)) {
    encode_scaled_codes(a);
  } else if (is_block(a.stored)) {
    encode_blocks(a);
  } else if (a.outputs > 0) {
    encode_grouped_columns(a, pack);
  } else {
    encode_row_codes(a, pack);
  }
  return quantized_stats(a);
}

EncodeStats encode_reference(const EncodeArgs& a) {
  if (is_quantized(a)) return encode_quantized(a, pack_codes);
  if (makes_groups(a)) return encode_groups(a);
  check_encode(a);
  write_scales(a);
  const Weight& to = a.to;
  const DType dtype = to.format.dtype;
  if (to.format.layout == WeightLayout::packed) clear_cells(a);
  EncodeStats stats;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols(); ++c) {
      const std::byte* from = a.row(r) + c * a.element_stride();
      std::byte* element = to.data + element_offset(to, a.first_row + r, a.first_col + c);
      float x = load_element(from, a.stored);
      float scale = a.row_scales ? a.row_scales[r] : scale_at(to, a.first_row + r, a.first_col + c);
      if (dtype == a.stored) {
        std::memcpy(element, from, static_cast<size_t>(dtype_bytes(dtype)));  // NaN payloads too
      } else {
        store_element(element, dtype, x / scale);
      }
      if (!std::isfinite(x)) {
        ++stats.not_finite;
        continue;
      }
      double error = static_cast<double>(x) - load_element(element, dtype) * scale;
      stats.error_squares += error * error;
      stats.value_squares += static_cast<double>(x) * x;
      stats.max_error = std::max(stats.max_error, static_cast<float>(std::abs(error)));
    }
  }
  stats.elements = a.rows * a.cols();
  return stats;
}

EncodeStats quantized_stats(const EncodeArgs& a) {
  if (has_scaled_codes(a)) return scaled_code_stats(a);
  if (is_block(a.stored)) return block_stats(a);
  return a.outputs > 0 ? grouped_column_stats(a) : row_code_stats(a);
}

int64_t quantized_source_bytes(const EncodeArgs& a) {
  if (a.rows == 0) return 0;
  if (is_block(a.stored))
    return a.row(a.rows - 1) - a.source + grouped_row_bytes(a.to.format, a.to.cols);
  if (is_grouped(a.to.format) && !has_scaled_codes(a))
    return a.outputs > 0 ? a.rows * a.source_stride : row_code_bytes(a);
  if (a.plane == Plane::codes) return a.source_bytes();
  const int64_t rows = a.sharing > 0 ? a.output(a.rows - 1) / a.sharing + 1 : 1;
  return rows * a.source_stride;
}

float decode_element(const Weight& w, int64_t row, int64_t col) {
  return load_element(w.data + element_offset(w, row, col), w.format.dtype) * scale_at(w, row, col);
}

void decode_row(const Weight& w, int64_t row, float* out) {
  if (is_grouped(w.format)) return decode_grouped_row(w, row, out);
  const DType dtype = w.format.dtype;
  const int64_t bytes = dtype_bytes(dtype);
  // Columns that lie together: all, or at least pairs (single ones of float32) in a cell.
  const int64_t run = w.format.layout == WeightLayout::rows ? w.cols : dtype == DType::f32 ? 1 : 2;
  for (int64_t first = 0; first < w.cols; first += run) {
    const std::byte* from = w.data + element_offset(w, row, first);
    const int64_t end = std::min(first + run, w.cols);
    for (int64_t c = first; c < end; ++c, from += bytes) out[c] = load_element(from, dtype);
  }
  if (w.format.scales == ScaleKind::none) return;
  const int64_t wide = w.format.scales == ScaleKind::per_block ? w.format.scale_cols : w.cols;
  for (int64_t first = 0; first < w.cols; first += wide) {
    const float scale = scale_at(w, row, first);
    for (int64_t c = first; c < std::min(first + wide, w.cols); ++c) out[c] *= scale;
  }
}

}  // namespace sluice
