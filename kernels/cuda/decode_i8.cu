#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gemv.h"

namespace sluice::cuda {
namespace {

using Words = Vec<uint32_t, 4>;  // 16 codes

// Codes without the 128: two's complement. Rows and columns that the weight lacks are zero.
template <class Codes>
__global__ void __launch_bounds__(kElementwiseThreads)
    decode_kernel(const uint8_t* codes, int64_t rows, int64_t cols, int8_t* to, int64_t to_cols) {
  constexpr int kWidth = static_cast<int>(sizeof(Codes));
  const int64_t row = blockIdx.x, c = elementwise_column(kWidth);
  if (c >= to_cols) return;
  Codes v{};
  if (row < rows && c < cols) {
    v = load_streaming<Codes>(codes + row * cols + c);
    if constexpr (kWidth == 1) {
      v.at[0] ^= 0x80;
    } else {
      for (uint32_t& word : v.at) word ^= 0x80808080;
    }
  }
  store_as(to + row * to_cols + c, v);
}

}  // namespace

void decode_rows_i8(const Weight& w, int64_t first, int64_t rows, I8Matrix to, Stream stream) {
  check(w.format.dtype == DType::i8 && to.rows >= rows && to.cols >= w.cols, "room for i8 codes");
  const auto* codes = reinterpret_cast<const uint8_t*>(w.data) + first * w.cols;
  auto with = [&](auto* kernel, int width) {
    launch(kernel, elementwise_launch(to.rows, to.cols, width), stream, codes, rows, w.cols,
           to.data, to.cols);
  };
  const auto start = reinterpret_cast<uintptr_t>(codes) | reinterpret_cast<uintptr_t>(to.data);
  if (to.cols == w.cols && (start | static_cast<uintptr_t>(to.cols)) % sizeof(Words) == 0) {
    with(decode_kernel<Words>, sizeof(Words));
  } else {
    with(decode_kernel<Vec<uint8_t, 1>>, 1);
  }
}

}  // namespace sluice::cuda
