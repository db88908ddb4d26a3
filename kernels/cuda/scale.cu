#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
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

struct MixArgs {
  const float* x;
  const float* weights;
  float* y;
  int64_t x_stride, weight_stride, y_stride, dim;
  int parts, others;
  float added;
};

// A thread has a column of each part.
__global__ void __launch_bounds__(kElementwiseThreads) mix_kernel(MixArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.dim) return;
  const float* x = a.x + blockIdx.x * a.x_stride + c;
  const float* weights = a.weights + blockIdx.x * a.weight_stride;
  float* y = a.y + blockIdx.x * a.y_stride + c;
  float from[kMostParts];
#pragma unroll
  for (int j = 0; j < kMostParts; ++j) from[j] = j < a.parts ? x[j * a.dim] : 0.0f;
  for (int k = 0; k < a.others; ++k) {
    float sum = y[k * a.dim];
#pragma unroll
    for (int j = 0; j < kMostParts; ++j) {
      if (j < a.parts) sum += (weights[k * a.parts + j] + a.added) * from[j];
    }
    y[k * a.dim] = sum;
  }
}

__device__ float block_mean_square(const float* row, int64_t cols) {
  float sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += row[c] * row[c];
  sum = block_reduce(sum, Plus{}, &shared_memory<float>());
  __syncthreads();
  return sum / static_cast<float>(cols);
}

struct MatchArgs {
  float* x;
  const float* to;
  int64_t x_stride, to_stride, dim;
  float least;
};

// One block a part of a row.
__global__ void __launch_bounds__(kElementwiseThreads) match_kernel(MatchArgs a) {
  float* part = a.x + blockIdx.x * a.x_stride + blockIdx.y * a.dim;
  const float target = block_mean_square(a.to + blockIdx.x * a.to_stride, a.dim);
  const float own = fmaxf(block_mean_square(part, a.dim), a.least);
  const float factor = sqrtf(target / own);
  for (int64_t c = threadIdx.x; c < a.dim; c += blockDim.x) part[c] *= factor;
}

// One block a row.
__global__ void __launch_bounds__(kElementwiseThreads)
    moments_kernel(const float* x, int64_t stride, int64_t cols, float* moments, int64_t to) {
  const float* row = x + blockIdx.x * stride;
  float sum = 0, squares = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    sum += row[c];
    squares += row[c] * row[c];
  }
  sum = block_reduce(sum, Plus{}, &shared_memory<float>());
  __syncthreads();
  squares = block_reduce(squares, Plus{}, &shared_memory<float>());
  if (threadIdx.x != 0) return;
  moments[blockIdx.x * to] = sum;
  moments[blockIdx.x * to + 1] = squares;
}

struct CutArgs {
  float* x;
  const float* moments;
  int64_t x_stride, moments_stride, x_cols;
  float cols, deviations;
};

__global__ void __launch_bounds__(kElementwiseThreads) cut_kernel(CutArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.x_cols) return;
  const float* moments = a.moments + blockIdx.x * a.moments_stride;
  const float mean = moments[0] / a.cols;
  const float variance = moments[1] / a.cols - mean * mean;
  const float least = mean + a.deviations * sqrtf(fmaxf(variance, 0.0f));
  float& v = a.x[blockIdx.x * a.x_stride + c];
  v = fmaxf(0.0f, v - least);
}

}  // namespace

void mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y, Stream stream) {
  check_mix(x, weights, dim, y);
  if (x.rows == 0 || y.cols == 0) return;
  const MixArgs args{.x = x.row<float>(0),
                     .weights = weights.row<float>(0),
                     .y = y.row<float>(0),
                     .x_stride = x.stride,
                     .weight_stride = weights.stride,
                     .y_stride = y.stride,
                     .dim = dim,
                     .parts = static_cast<int>(x.cols / dim),
                     .others = static_cast<int>(y.cols / dim),
                     .added = added};
  launch(mix_kernel, elementwise_launch(x.rows, dim, 1), stream, args);
}

void match_squares(Tensor x, Tensor to, float least, Stream stream) {
  check_match_squares(x, to, least);
  if (x.rows == 0 || x.cols == 0) return;
  const uint32_t threads = block_threads(to.cols, kElementwiseThreads);
  const auto parts = static_cast<uint32_t>(x.cols / to.cols);
  const MatchArgs args{.x = x.row<float>(0),
                       .to = to.row<float>(0),
                       .x_stride = x.stride,
                       .to_stride = to.stride,
                       .dim = to.cols,
                       .least = least};
  launch(match_kernel, {{static_cast<uint32_t>(x.rows), parts}, {threads}, threads / 32 * 4},
         stream, args);
}

void sum_moments(Tensor x, Tensor moments, Stream stream) {
  check_sum_moments(x, moments);
  if (x.rows == 0) return;
  const uint32_t threads = block_threads(x.cols, kElementwiseThreads);
  const Launch at{{static_cast<uint32_t>(x.rows)}, {threads}, threads / 32 * 4};
  launch(moments_kernel, at, stream, x.row<float>(0), x.stride, x.cols, moments.row<float>(0),
         moments.stride);
}

void cut(Tensor x, float deviations, Tensor moments, int64_t cols, Stream stream) {
  check_cut(x, moments, cols);
  if (x.rows == 0 || x.cols == 0) return;
  const CutArgs args{.x = x.row<float>(0),
                     .moments = moments.row<float>(0),
                     .x_stride = x.stride,
                     .moments_stride = moments.stride,
                     .x_cols = x.cols,
                     .cols = static_cast<float>(cols),
                     .deviations = deviations};
  launch(cut_kernel, elementwise_launch(x.rows, x.cols, 1), stream, args);
}

void scale_heads(Tensor x, Tensor factors, Stream stream) {
  check_scale_heads(x, factors);
  if (x.rows == 0 || x.cols == 0) return;
  const ScaleHeadsArgs args{.x = x.row<float>(0),
                            .factors = factors.row<float>(0),
                            .stride = x.stride,
                            .factor_stride = factors.rows == 1 ? 0 : factors.stride,
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
