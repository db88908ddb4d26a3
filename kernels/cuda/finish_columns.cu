#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gemv.h"

namespace sluice::cuda {
namespace {

template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads)
    finish_kernel(float* y, int64_t y_stride, int64_t cols, const float* x_scales,
                  const float* scales, const float* bias) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= cols) return;
  auto v = load_as<Vec<float, kWidth>>(y + blockIdx.x * y_stride + c);
  for (int i = 0; i < kWidth; ++i) {
    if (x_scales != nullptr) v.at[i] *= x_scales[blockIdx.x];
    if (scales != nullptr) v.at[i] *= scales[c + i];
    if (bias != nullptr) v.at[i] += bias[c + i];
  }
  store_as(y + blockIdx.x * y_stride + c, v);
}

}  // namespace

void finish_columns(Tensor y, const float* x_scales, const float* scales, const float* bias,
                    Stream stream) {
  with_width(
      [&](auto width) {
        launch(finish_kernel<width()>, elementwise_launch(y.rows, y.cols, width), stream,
               y.row<float>(0), y.stride, y.cols, x_scales, scales, bias);
      },
      y);
}

}  // namespace sluice::cuda
