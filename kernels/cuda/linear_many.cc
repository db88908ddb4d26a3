#include "kernels/cuda/linear_many.h"

#include <algorithm>

#include "kernels/cuda/gemv.h"
#include "quant/groups.h"
#include "quant/matrix_layout.h"
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
  uint16_t* tile;  // of the weight, with scales of its blocks
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

// Returns whether the library can multiply codes of w.
bool codes_fit(const Weight& w, Tensor y, InputScales x_scales) {
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(y.data));
  if ((w.cols | w.rows | at) % kE4M3Unit != 0) return false;
  return x_scales.block_step == 0 || (w.format.whole_blocks && w.cols % kScaleBlock == 0);
}

// Rows [first, first + rows) of a weight, as the library has them. Scales of blocks go behind the
// codes, in the half of a tile that bf16 would need.
E4M3Matrix codes_of(const Weight& w, int64_t first, int64_t rows, bool blocks, const Parts& parts,
                    Stream stream) {
  auto* codes = reinterpret_cast<uint8_t*>(parts.tile);
  unpack_rows(w, first, rows, codes, stream);
  E4M3Matrix matrix{codes, rows, w.cols, w.scales + first, blocks};
  if (!blocks) return matrix;
  Weight some = rows_from(w, first);
  some.rows = rows;
  auto* scales = reinterpret_cast<float*>(codes + tile_rows(w.cols) * w.cols);
  block_scales(some, scales, stream);
  matrix.scales = scales;
  return matrix;
}

// y = codes of x times codes of w, a tile of rows at a time, where that can be.
E4M3Product multiply_codes(Tensor x, InputScales x_scales, const Weight& w, Gemm& gemm,
                           const Parts& parts, Tensor y, Stream stream) {
  if (!codes_fit(w, y, x_scales)) return E4M3Product::none;
  const bool blocks = x_scales.block_step != 0;
  auto* codes = reinterpret_cast<uint8_t*>(parts.x);
  const E4M3Matrix rows{codes, x.rows, x.cols, x_scales.at, blocks};
  const int64_t step = std::min(tile_rows(w.cols), w.rows);
  const auto* tile = reinterpret_cast<const uint8_t*>(parts.tile);
  E4M3Product result =
      gemm.product_of(rows, {tile, step, w.cols, w.scales, blocks}, y.columns(0, step));
  if (result == E4M3Product::none) return result;
  round_rows_e4m3(x, {codes, x.cols, x_scales}, stream);
  for (int64_t row = 0; row < w.rows; row += step) {
    const int64_t count = std::min(step, w.rows - row);
    const E4M3Matrix weight = codes_of(w, row, count, blocks, parts, stream);
    const Tensor to = y.columns(row, count);
    while (!gemm.multiply_e4m3(rows, weight, to, parts.gemm, stream)) {
      result = gemm.product_of(rows, weight, to);
      if (row > 0 || result == E4M3Product::none) return E4M3Product::none;
    }
  }
  return result;
}

// y = x rounded to bf16 times w decoded to bf16, a tile of rows at a time: with scales of rows
// their codes, with scales of blocks or groups what the codes mean, rounded again. False where the
// library refuses.
bool multiply_bf16(Tensor x, InputScales x_scales, const Weight& w, Gemm& gemm, const Parts& parts,
                   Tensor y, Stream stream) {
  Bf16Rows rounded{parts.x, x.rows, x.cols, x_scales};
  rounded.scaled = x_scales.block_step != 0;
  round_rows_bf16(x, rounded, stream);
  const Bf16Matrix rows{parts.x, x.rows, x.cols};
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
  check(!w.is_meta() && w.format.layout == layout_of(MatrixLayout::by_codes, w.format),
        "a resident weight in the layout that its codes have");
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
