// Choice of the kernel that multiplies a few rows.
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/ops.h"

namespace sluice::cuda {
namespace {

int64_t padded(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// Returns whether x is rounded to bf16 and multiplied as that.
bool rounds(const Weight& w, Compute compute) {
  const DType codes = w.format.dtype;
  return compute == Compute::bf16 && (codes == DType::bf16 || codes == DType::f8_e4m3);
}

bool takes_fragments(const Weight& w, Compute compute) {
  return !is_grouped(w.format) && (rounds(w, compute) || w.format.quantized_input) &&
         gemv_mma_fits(w);
}

void check_few_rows(const Tensor& x, const Weight& w, Compute compute, const Tensor& y) {
  check(!w.is_meta() && w.format.layout == WeightLayout::rows, "a resident weight of plain rows");
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
  const bool plain =
      !is_grouped(w.format) && w.format.dtype != DType::i8 && !w.format.quantized_input;
  return plain && !(rounds(w, compute) && gemv_mma_fits(w)) ? kAny : kFewRows;
}

bool gated_fits(const Weight& w, int64_t second, const ActivationParams& activation,
                Compute compute) {
  return takes_fragments(w, compute) && second % kMmaRows == 0 &&
         activation.kind != Activation::xielu;
}

uint64_t few_rows_workspace_bytes(int64_t cols) {
  const int64_t blocks = ceil_div(cols, kScaleBlock);
  return static_cast<uint64_t>(kFewRows * (padded(cols, kMmaCols) + blocks)) * sizeof(float);
}

void linear_few_rows(Tensor x, const Weight& w, const float* bias, Compute compute,
                     std::byte* workspace, Tensor y, Stream stream, const GatedRows& gated) {
  check_few_rows(x, w, compute, y);
  check(gated.width == 0 || takes_fragments(w, compute), "a gate that fragments fit");
  if (y.rows == 0 || y.cols == 0) return;
  if (is_grouped(w.format)) {
    if (compute == Compute::bf16 && gemv_grouped_fits(w))
      return gemv_grouped(x, w, bias, workspace, y, stream);
    return grouped_few_rows(x, w, bias, compute == Compute::bf16, y, stream);
  }
  const DType codes = w.format.dtype;
  if (codes == DType::i8) {
    const int64_t cols = padded(w.cols, kI8Cols);
    const I8Rows rounded{reinterpret_cast<int8_t*>(workspace), cols,
                         reinterpret_cast<float*>(workspace + kFewRows * cols)};
    round_rows_i8(x, rounded, stream);
    return gemv_i8(rounded, w, bias, y, stream);
  }
  const int64_t cols = padded(w.cols, kMmaCols);
  InputScales scales;
  if (w.format.quantized_input) {
    scales.at = reinterpret_cast<float*>(workspace) + kFewRows * cols;
    if (w.format.scales == ScaleKind::per_block) {
      scales.row_step = ceil_div(w.cols, kScaleBlock);
      scales.block_step = 1;
    }
  }
  const bool round = rounds(w, compute);
  if (takes_fragments(w, compute)) {
    if (scales.at == nullptr && gemv_mma_rounds(x)) return gemv_mma(x, w, bias, gated, y, stream);
    const Bf16Rows rounded{reinterpret_cast<uint16_t*>(workspace), x.rows, cols, scales};
    round_rows_bf16(x, rounded, stream);
    return gemv_mma(rounded, w, bias, gated, y, stream);
  }
  if (scales.at == nullptr) return gemv_f32(x, {}, w, bias, round, y, stream);
  const Tensor values{workspace, DType::f32, x.rows, w.cols, cols};
  round_rows_e4m3(x, values, scales, stream);
  gemv_f32(values, scales, w, bias, false, y, stream);
}

}  // namespace sluice::cuda
