#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads)
    add_kernel(float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t cols) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= cols) return;
  auto sum = load_as<Vec<float, kWidth>>(x + blockIdx.x * x_stride + c);
  const auto by = load_as<Vec<float, kWidth>>(y + blockIdx.x * y_stride + c);
  for (int i = 0; i < kWidth; ++i) sum.at[i] += by.at[i];
  store_as(x + blockIdx.x * x_stride + c, sum);
}

}  // namespace

void add(Tensor x, Tensor y, Stream stream) {
  check_same_shape(x, y);
  if (x.rows == 0 || x.cols == 0) return;
  with_width(
      [&](auto width) {
        launch(add_kernel<width()>, elementwise_launch(x.rows, x.cols, width), stream,
               x.row<float>(0), x.stride, y.row<float>(0), y.stride, x.cols);
      },
      x, y);
}

}  // namespace sluice::cuda
