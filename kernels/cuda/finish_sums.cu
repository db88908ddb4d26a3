#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gemv.h"

namespace sluice::cuda {
namespace {

struct FinishArgs {
  const int32_t* sums;
  const float* x_scales;
  const float* scales;
  const float* bias;
  float* y;
  int64_t sums_stride, y_stride, cols;
};

// Adds in the order of gemv_panels, for the same bits.
template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads) finish_kernel(FinishArgs a) {
  const int64_t row = blockIdx.x, c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  const auto sums = load_streaming<Vec<int32_t, kWidth>>(a.sums + row * a.sums_stride + c);
  Vec<float, kWidth> out;
  for (int i = 0; i < kWidth; ++i) {
    const float product = static_cast<float>(sums.at[i]) * a.x_scales[row] * a.scales[c + i];
    out.at[i] = a.bias == nullptr ? product : product + a.bias[c + i];
  }
  store_as(a.y + row * a.y_stride + c, out);
}

}  // namespace

void finish_sums(const int32_t* sums, int64_t sums_stride, const float* x_scales,
                 const float* scales, const float* bias, Tensor y, Stream stream) {
  const FinishArgs args{sums,        x_scales, scales, bias, y.row<float>(0),
                        sums_stride, y.stride, y.cols};
  with_width(
      [&](auto width) {
        constexpr int kWidth = width();
        launch(finish_kernel<kWidth>, elementwise_launch(y.rows, y.cols, kWidth), stream, args);
      },
      y,
      Tensor{reinterpret_cast<std::byte*>(const_cast<int32_t*>(sums)), DType::f32, y.rows, y.cols,
             sums_stride});
}

}  // namespace sluice::cuda
