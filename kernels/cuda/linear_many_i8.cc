// Many rows of x, rounded to i8, times a weight of i8: exact sums of integers by the vendor's
// library, scaled afterwards.
#include <algorithm>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_many.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kTileRows = 128;  // tiles of the weight are multiples of it
constexpr uint64_t kAlignment = 256;

// Integer products want dimensions of whole vectors.
int64_t padded(int64_t value) { return ceil_div(value, kI8Cols) * kI8Cols; }

// A row of the weight takes its codes, and a sum for each row of x.
uint64_t row_bytes(int64_t rows, int64_t cols) {
  return static_cast<uint64_t>(padded(cols) + rows * static_cast<int64_t>(sizeof(int32_t)));
}

int64_t tile_rows(int64_t rows, int64_t cols) {
  const auto fit = static_cast<int64_t>(kManyTileBytes / row_bytes(rows, cols));
  return std::max<int64_t>(fit / kTileRows, 1) * kTileRows;
}

uint64_t tile_bytes(int64_t rows, int64_t cols) {
  return std::max(kManyTileBytes, kTileRows * row_bytes(rows, cols));
}

uint64_t scales_bytes(int64_t rows) {
  return round_up(static_cast<uint64_t>(rows) * sizeof(float), kAlignment);
}

}  // namespace

uint64_t linear_many_i8_bytes(int64_t rows, int64_t cols) {
  return kGemmWorkspace + tile_bytes(rows, cols) + scales_bytes(rows) +
         round_up(static_cast<uint64_t>(rows * padded(cols)), kAlignment);
}

bool linear_many_rows_i8(Tensor x, const Weight& w, const float* bias, Gemm& gemm,
                         std::span<std::byte> workspace, Tensor y, Stream stream) {
  check(w.format.scales == ScaleKind::per_row && w.cols <= kMostI8Cols, "i8 codes with scales");
  check(workspace.size() >= linear_many_i8_bytes(x.rows, x.cols), "linear: workspace");
  std::byte* tile = workspace.data() + kGemmWorkspace;
  std::byte* scales = tile + tile_bytes(x.rows, x.cols);
  const int64_t cols = padded(x.cols);
  const I8Rows rounded{reinterpret_cast<int8_t*>(scales + scales_bytes(x.rows)), cols,
                       reinterpret_cast<float*>(scales)};
  round_rows_i8(x, rounded, stream);
  const int64_t step = tile_rows(x.rows, x.cols);
  for (int64_t row = 0; row < w.rows; row += step) {
    const int64_t count = std::min(step, w.rows - row);
    const I8Matrix codes{reinterpret_cast<int8_t*>(tile), padded(count), cols};
    auto* sums = reinterpret_cast<int32_t*>(tile + codes.rows * codes.cols);
    decode_rows_i8(w, row, count, codes, stream);
    if (!gemm.multiply_i8({rounded.data, x.rows, cols}, codes, sums,
                          workspace.first(kGemmWorkspace), stream))
      return false;
    finish_sums(sums, codes.rows, rounded.scales, w.scales + row,
                bias == nullptr ? nullptr : bias + row, y.columns(row, count), stream);
  }
  return true;
}

}  // namespace sluice::cuda
