// Activations in the type that a linear layer multiplies: bf16, or i8 with a scale for each row.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "quant/encode.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// A block makes a row of `to`, of `to_cols` elements; rows and columns that x lacks are zero.
__global__ void __launch_bounds__(kThreads)
    bf16_kernel(const float* x, int64_t x_stride, int rows, int cols, uint16_t* to, int to_cols) {
  const int row = static_cast<int>(blockIdx.x);
  for (int c = static_cast<int>(threadIdx.x); c < to_cols; c += kThreads) {
    const bool there = row < rows && c < cols;
    to[int64_t{row} * to_cols + c] = there ? float_to_bf16(x[row * x_stride + c]) : uint16_t{0};
  }
}

// The same for codes of largest |x| / 127; the scale of a row that is not finite is NaN.
__global__ void __launch_bounds__(kThreads)
    i8_kernel(const float* x, int64_t x_stride, int cols, int8_t* to, int to_cols, float* scales) {
  using Code = Element<DType::i8>;
  const float* from = x + blockIdx.x * x_stride;
  float top = 0;
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += kThreads) {
    const float magnitude = fabsf(from[c]);
    // NaN counts as infinity: maxima would drop it.
    top = Larger{}(
        top, magnitude <= 3.4028234e38f ? magnitude : std::bit_cast<float>(kFloatInfinityBits));
  }
  top = block_reduce(top, Larger{}, &shared_memory<float>());
  const float quotient = top / Code::kMax, scale = quotient > 0 ? quotient : 1.0f;
  for (int c = static_cast<int>(threadIdx.x); c < to_cols; c += kThreads) {
    const int code = c < cols ? Code::encode(from[c] / scale) - 128 : 0;
    to[int64_t{blockIdx.x} * to_cols + c] = static_cast<int8_t>(code);
  }
  const bool finite = top < std::bit_cast<float>(kFloatInfinityBits);
  if (threadIdx.x == 0) {
    scales[blockIdx.x] = finite ? scale : std::bit_cast<float>(kFloatNanBits);
  }
}

}  // namespace

void round_rows_bf16(Tensor x, Bf16Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.rows >= x.rows && to.cols >= x.cols, "room for all of x");
  launch(bf16_kernel, {{static_cast<uint32_t>(to.rows)}, {kThreads}}, stream, x.row<float>(0),
         x.stride, static_cast<int>(x.rows), static_cast<int>(x.cols), to.data,
         static_cast<int>(to.cols));
}

void round_rows_i8(Tensor x, I8Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  launch(i8_kernel, {{static_cast<uint32_t>(x.rows)}, {kThreads}, kThreads / 32 * 4}, stream,
         x.row<float>(0), x.stride, static_cast<int>(x.cols), to.data, static_cast<int>(to.cols),
         to.scales);
}

}  // namespace sluice::cuda
