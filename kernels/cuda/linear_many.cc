#include "kernels/cuda/linear_many.h"

#include <algorithm>

#include "kernels/cuda/gemv.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kTileRows = 128;  // tiles of decoded weight are multiples of it

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
  return kGemmWorkspace + tile_bytes(cols) + matrix_bytes(rows, cols);
}

struct Parts {
  uint16_t* x;
  uint16_t* tile;
  std::span<std::byte> gemm;
};

Parts divide(std::span<std::byte> workspace, int64_t rows, int64_t cols) {
  check(workspace.size() >= bf16_bytes(rows, cols), "linear: workspace");
  std::byte* tile = workspace.data() + kGemmWorkspace;
  return {reinterpret_cast<uint16_t*>(tile + tile_bytes(cols)), reinterpret_cast<uint16_t*>(tile),
          workspace.first(kGemmWorkspace)};
}

}  // namespace

bool linear_many_fits(const Weight& w, Compute compute) {
  const DType codes = w.format.dtype;
  return codes == DType::i8 ||
         (compute == Compute::bf16 && (codes == DType::bf16 || codes == DType::f8_e4m3));
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
  round_rows_bf16(x, {parts.x, x.rows, x.cols}, stream);
  const Bf16Matrix rows{parts.x, x.rows, x.cols};
  if (w.format.dtype == DType::bf16) {
    const auto* data = reinterpret_cast<const uint16_t*>(w.data);
    gemm.multiply(rows, {data, w.rows, w.cols}, y, parts.gemm, stream);
  } else {
    const int64_t step = tile_rows(w.cols);
    for (int64_t row = 0; row < w.rows; row += step) {
      const int64_t count = std::min(step, w.rows - row);
      decode_rows(w, row, count, parts.tile, stream);
      gemm.multiply(rows, {parts.tile, count, w.cols}, y.columns(row, count), parts.gemm, stream);
    }
  }
  const float* scales = w.format.scales == ScaleKind::per_row ? w.scales : nullptr;
  if (scales != nullptr || bias != nullptr) finish_columns(y, scales, bias, stream);
  return true;
}

}  // namespace sluice::cuda
