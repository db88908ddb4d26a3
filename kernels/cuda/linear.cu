// Choice of the kernel that multiplies a few rows.
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/ops.h"
#include "quant/matrix_layout.h"

namespace sluice::cuda {
namespace {

int64_t padded(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// Returns whether tensor cores multiply the weight: in bf16, or by codes of x.
bool takes_fragments(const Weight& w, Compute compute) {
  return w.format.layout == WeightLayout::packed &&
         (compute == Compute::bf16 || w.format.quantized_input || w.format.dtype == DType::i8);
}

// Returns whether numbers of x are rounded to bf16, and no more.
bool multiplies_as_they_are(const Weight& w) {
  return !w.format.quantized_input && w.format.dtype != DType::i8;
}

void check_few_rows(const Tensor& x, const Weight& w, Compute compute, const Tensor& y) {
  check(!w.is_meta() && w.format.layout == layout_of(MatrixLayout::by_codes, w.format),
        "a resident weight in the layout that its codes have");
  check(w.format.scales == ScaleKind::none || w.plane(Plane::scales) != nullptr,
        "scales are resident");
  check(is_grouped(w.format) || w.format.scale_cols == kScaleBlock, "blocks of 128 columns");
  check(x.dtype == DType::f32 && y.dtype == DType::f32, "activations are float32");
  check(x.rows <= most_rows(w, compute) && x.rows == y.rows && x.cols == w.cols && y.cols == w.rows,
        "y = x w^T of a few rows");
}

}  // namespace

int64_t most_rows(const Weight& w, Compute compute) {
  constexpr int64_t kAny = kFewRows * 65535;  // CUDA C++ Programming Guide: blocks of a grid in y
  return is_grouped(w.format) || takes_fragments(w, compute) ? kFewRows : kAny;
}

bool fusion_fits(const Weight& w, int64_t rows, const Fusion& fusion, Compute compute) {
  const bool gated = fusion.width > 0;
  return rows <= kFewRows && takes_fragments(w, compute) &&
         (!gated || (fusion.second % kPanelRows == 0 && gating_fits(fusion.activation.kind))) &&
         (!fusion.norm || (multiplies_as_they_are(w) && gemv_panels_norms(*fusion.norm, w, rows)));
}

uint64_t few_rows_workspace_bytes(int64_t cols) {
  const int64_t blocks = ceil_div(cols, kScaleBlock);
  return static_cast<uint64_t>(kFewRows * (padded(cols, kMmaCols) + blocks)) * sizeof(float);
}

void linear_few_rows(Tensor x, const Weight& w, const float* bias, Compute compute,
                     std::byte* workspace, Tensor y, Stream stream, const Fusion& fusion) {
  check_few_rows(x, w, compute, y);
  const bool fuses = fusion.norm || fusion.width > 0 || fusion.adds;
  check(!fuses || fusion_fits(w, x.rows, fusion, compute), "a fusion that fragments fit");
  if (y.rows == 0 || y.cols == 0) return;
  if (is_grouped(w.format)) {
    if (compute == Compute::bf16 && gemv_grouped_fits(w))
      return gemv_grouped(x, w, bias, workspace, y, stream);
    if (compute == Compute::bf16 && gemv_units_fits(w))
      return gemv_units(x, w, bias, workspace, y, stream);
    return grouped_few_rows(x, w, bias, compute == Compute::bf16, y, stream);
  }
  if (!takes_fragments(w, compute)) return gemv_f32(x, w, bias, y, stream);
  const int64_t cols = padded(w.cols, kMmaCols), cell = cell_cols(w.format.dtype);
  float* const scales = reinterpret_cast<float*>(workspace) + kFewRows * cols;
  if (w.format.dtype == DType::i8) {
    const I8Rows rounded{reinterpret_cast<int8_t*>(workspace), cols, scales, cell};
    round_rows_i8(x, rounded, stream);
    return gemv_panels(rounded, w, bias, fusion, y, stream);
  }
  const bool aligned = x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  check(aligned || !fusion.norm, "rows that are normed begin at multiples of 16 bytes");
  if (aligned && multiplies_as_they_are(w) && gemv_panels_rounds(x.rows, x.cols))
    return gemv_panels(x, w, bias, fusion, y, stream);
  Bf16Rows rounded{reinterpret_cast<uint16_t*>(workspace), x.rows, cols, {}};
  rounded.cell = cell;
  if (w.format.quantized_input) {
    rounded.scales.at = scales;
    if (w.format.scales == ScaleKind::per_block) {
      rounded.scales.row_step = ceil_div(w.cols, kScaleBlock);
      rounded.scales.block_step = 1;
    }
  }
  round_rows_bf16(x, rounded, stream);
  gemv_panels(rounded, w, bias, fusion, y, stream);
}

}  // namespace sluice::cuda
