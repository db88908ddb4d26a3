#include "kernels/cuda/linear_many.h"

#include <algorithm>

#include "kernels/cuda/gemv.h"
#include "quant/groups.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kTileRows = 128;  // tiles of decoded weight are multiples of it
constexpr int64_t kE4M3Unit = 16;   // columns, rows and bytes that products of E4M3 come in
constexpr int64_t kScaledUnit = 4;  // and rows of the input, where these have scales of blocks

int64_t tile_rows(int64_t cols) {
  auto row = static_cast<uint64_t>(std::max<int64_t>(cols, 1) * 2);
  return std::max<int64_t>(static_cast<int64_t>(kManyTileBytes / row) / kTileRows, 1) * kTileRows;
}

uint64_t matrix_bytes(int64_t rows, int64_t cols) {
  return round_up(static_cast<uint64_t>(rows * cols * 2), 256);
}

uint64_t tile_bytes(int64_t cols) {
  return std::max(kManyTileBytes, matrix_bytes(kTileRows, cols));
}

uint64_t bf16_bytes(int64_t rows, int64_t cols) {
  return kGemmWorkspace + tile_bytes(cols) + matrix_bytes(rows, cols) +
         matrix_bytes(rows, 2 * ceil_div(cols, kScaleBlock));
}

struct Parts {
  uint16_t* x;
  float* x_scales;
  uint16_t* tile;  // of the weight, or scales of its blocks
  std::span<std::byte> gemm;
};

Parts divide(std::span<std::byte> workspace, int64_t rows, int64_t cols) {
  check(workspace.size() >= bf16_bytes(rows, cols), "linear: workspace");
  std::byte* tile = workspace.data() + kGemmWorkspace;
  std::byte* x = tile + tile_bytes(cols);
  return {reinterpret_cast<uint16_t*>(x), reinterpret_cast<float*>(x + matrix_bytes(rows, cols)),
          reinterpret_cast<uint16_t*>(tile), workspace.first(kGemmWorkspace)};
}

// Scales of so many rows' codes, for products with `w`; those of blocks lie as cuBLASLt wants them.
InputScales input_scales(const Weight& w, int64_t rows, const Parts& parts) {
  if (!w.format.quantized_input) return {};
  return {parts.x_scales, 1, w.format.scales == ScaleKind::per_block ? rows : 0};
}

// Returns whether the library can multiply codes of w where they are.
bool codes_fit(const Weight& w, Tensor y, InputScales x_scales) {
  const auto at = reinterpret_cast<uintptr_t>(w.data) | reinterpret_cast<uintptr_t>(y.data);
  if ((w.cols | w.rows | static_cast<int64_t>(at)) % kE4M3Unit != 0) return false;
  return x_scales.block_step == 0 || (w.format.whole_blocks && w.cols % kScaleBlock == 0);
}

// y = codes of x times codes of w, both as they are, where that can be.
E4M3Product multiply_codes(Tensor x, InputScales x_scales, const Weight& w, Gemm& gemm,
                           const Parts& parts, Tensor y, Stream stream) {
  if (!codes_fit(w, y, x_scales)) return E4M3Product::none;
  const bool blocks = x_scales.block_step != 0;
  auto* codes = reinterpret_cast<uint8_t*>(parts.x);
  const E4M3Matrix rows{codes, x.rows, x.cols, x_scales.at, blocks};
  E4M3Matrix weight{reinterpret_cast<const uint8_t*>(w.data), w.rows, w.cols, w.scales, blocks};
  if (blocks) weight.scales = reinterpret_cast<const float*>(parts.tile);
  E4M3Product result = gemm.product_of(rows, weight, y);
  if (result == E4M3Product::none) return result;
  round_rows_e4m3(x, {codes, x.cols, x_scales}, stream);
  if (blocks) block_scales(w, reinterpret_cast<float*>(parts.tile), stream);
  while (result != E4M3Product::none && !gemm.multiply_e4m3(rows, weight, y, parts.gemm, stream))
    result = gemm.product_of(rows, weight, y);
  return result;
}

// y = x rounded to bf16 times w decoded to bf16: with scales of rows their codes, with scales of
// blocks or groups what the codes mean, rounded again. False where the library refuses.
bool multiply_bf16(Tensor x, InputScales x_scales, const Weight& w, Gemm& gemm, const Parts& parts,
                   Tensor y, Stream stream) {
  round_rows_bf16(x, {parts.x, x.rows, x.cols, x_scales, x_scales.block_step != 0}, stream);
  const Bf16Matrix rows{parts.x, x.rows, x.cols};
  if (w.format.dtype == DType::bf16) {
    const auto* data = reinterpret_cast<const uint16_t*>(w.data);
    return gemm.multiply(rows, {data, w.rows, w.cols}, y, parts.gemm, stream);
  }
  const int64_t step = tile_rows(w.cols);
  for (int64_t row = 0; row < w.rows; row += step) {
    const int64_t count = std::min(step, w.rows - row);
    decode_rows(w, row, count, parts.tile, stream);
    if (!gemm.multiply(rows, {parts.tile, count, w.cols}, y.columns(row, count), parts.gemm,
                       stream))
      return false;
  }
  return true;
}

}  // namespace

bool linear_many_fits(const Weight& w, Compute compute) {
  const DType codes = w.format.dtype;
  return codes == DType::i8 || w.format.quantized_input ||
         (compute == Compute::bf16 &&
          (codes == DType::bf16 || codes == DType::f8_e4m3 || is_grouped(w.format)));
}

uint64_t linear_many_workspace_bytes(int64_t rows, int64_t cols) {
  return std::max(bf16_bytes(rows, cols), linear_many_i8_bytes(rows, cols));
}

bool linear_many_rows(Tensor x, const Weight& w, const float* bias, Gemm& gemm,
                      std::span<std::byte> workspace, Tensor y, Stream stream) {
  check(!w.is_meta() && w.format.layout == WeightLayout::rows, "a resident weight of plain rows");
  check(x.rows == y.rows && x.cols == w.cols && y.cols == w.rows, "linear: y = x w^T");
  if (y.rows == 0 || y.cols == 0) return true;
  if (w.format.dtype == DType::i8)
    return linear_many_rows_i8(x, w, bias, gemm, workspace, y, stream);
  const Parts parts = divide(workspace, x.rows, x.cols);
  const bool blocks = w.format.scales == ScaleKind::per_block;
  int64_t rows = blocks ? x.rows / kScaledUnit * kScaledUnit : x.rows;
  InputScales x_scales = input_scales(w, rows, parts);
  E4M3Product codes = E4M3Product::none;
  if (x_scales.at != nullptr)
    codes = multiply_codes(x.rows_from(0, rows), x_scales, w, gemm, parts, y.rows_from(0, rows),
                           stream);
  if (codes == E4M3Product::none) {
    rows = x.rows;
    x_scales = input_scales(w, rows, parts);
    if (!multiply_bf16(x, x_scales, w, gemm, parts, y, stream)) return false;
  }
  const bool unscaled = codes != E4M3Product::scaled && !blocks && w.scales != nullptr;
  if (unscaled || bias != nullptr)
    finish_columns(y.rows_from(0, rows), unscaled ? x_scales.at : nullptr,
                   unscaled ? w.scales : nullptr, bias, stream);
  if (rows < x.rows)
    linear_few_rows(x.rows_from(rows, x.rows - rows), w, bias, Compute::bf16, workspace.data(),
                    y.rows_from(rows, x.rows - rows), stream);
  return true;
}

}  // namespace sluice::cuda
