#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

enum class Elementwise : uint8_t { scale, soft_cap, clamp };

struct ScaleArgs {
  float* x;
  int64_t stride, cols;
  float factor;     // or the cap, or the limit
  const float* by;  // null: none
};

template <Elementwise kOp>
__device__ float apply(float x, float factor) {
  if constexpr (kOp == Elementwise::scale) return x * factor;
  if constexpr (kOp == Elementwise::soft_cap) return factor * tanhf(x / factor);
  return x < -factor ? -factor : x > factor ? factor : x;
}

template <int kWidth, Elementwise kOp>
__global__ void __launch_bounds__(kElementwiseThreads) scale_kernel(ScaleArgs a) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  float* at = a.x + blockIdx.x * a.stride + c;
  const float factor = a.by != nullptr ? a.factor * *a.by : a.factor;
  auto v = load_as<Vec<float, kWidth>>(at);
  for (int i = 0; i < kWidth; ++i) v.at[i] = apply<kOp>(v.at[i], factor);
  store_as(at, v);
}

template <Elementwise kOp>
void launch_scale(Tensor x, float factor, const float* by, Stream stream) {
  if (x.rows == 0 || x.cols == 0) return;
  const ScaleArgs args{x.row<float>(0), x.stride, x.cols, factor, by};
  with_width(
      [&](auto width) {
        launch(scale_kernel<width(), kOp>, elementwise_launch(x.rows, x.cols, width), stream, args);
      },
      x);
}

struct ScaleHeadsArgs {
  float* x;
  const float* factors;
  int64_t stride, factor_stride, cols, dim;
};

__global__ void __launch_bounds__(kElementwiseThreads) scale_heads_kernel(ScaleHeadsArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.cols) return;
  a.x[blockIdx.x * a.stride + c] *= a.factors[blockIdx.x * a.factor_stride + c / a.dim];
}

}  // namespace

void scale_heads(Tensor x, Tensor factors, Stream stream) {
  check_scale_heads(x, factors);
  if (x.rows == 0 || x.cols == 0) return;
  const ScaleHeadsArgs args{.x = x.row<float>(0),
                            .factors = factors.row<float>(0),
                            .stride = x.stride,
                            .factor_stride = factors.stride,
                            .cols = x.cols,
                            .dim = x.cols / factors.cols};
  launch(scale_heads_kernel, elementwise_launch(x.rows, x.cols, 1), stream, args);
}

void scale(Tensor x, float factor, const float* by, Stream stream) {
  check_same_shape(x, x);
  launch_scale<Elementwise::scale>(x, factor, by, stream);
}

void soft_cap(Tensor x, float cap, Stream stream) {
  check_soft_cap(x, cap);
  launch_scale<Elementwise::soft_cap>(x, cap, nullptr, stream);
}

void clamp(Tensor x, float limit, Stream stream) {
  check_clamp(x, limit);
  launch_scale<Elementwise::clamp>(x, limit, nullptr, stream);
}

}  // namespace sluice::cuda
