#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

struct IndexArgs {
  const float* from;
  int64_t from_stride, cols;
  const int32_t* rows;
  const float* weights;  // null: ones
  int64_t weight_stride;
  float* to;
  int64_t to_stride;
};

__device__ inline float weight_of(const IndexArgs& a) {
  return a.weights == nullptr ? 1 : a.weights[blockIdx.x * a.weight_stride];
}

template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads) index_select_kernel(IndexArgs a) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  const float* from = a.from + a.rows[blockIdx.x] * a.from_stride + c;
  auto v = load_as<Vec<float, kWidth>>(from);
  const float weight = weight_of(a);
  for (int i = 0; i < kWidth; ++i) v.at[i] *= weight;
  store_as(a.to + blockIdx.x * a.to_stride + c, v);
}

template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads) index_add_kernel(IndexArgs a) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  float* to = a.to + a.rows[blockIdx.x] * a.to_stride + c;
  const auto by = load_as<Vec<float, kWidth>>(a.from + blockIdx.x * a.from_stride + c);
  auto sum = load_as<Vec<float, kWidth>>(to);
  const float weight = weight_of(a);
  for (int i = 0; i < kWidth; ++i) sum.at[i] += weight * by.at[i];
  store_as(to, sum);
}

}  // namespace

void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor out,
                  Stream stream) {
  check_index(out, rows, weights, x);
  if (out.rows == 0 || out.cols == 0) return;
  const IndexArgs args{
      x.row<float>(0), x.stride,          x.cols,    rows.data(), weights.row<float>(0),
      weights.stride,  out.row<float>(0), out.stride};
  with_width(
      [&](auto width) {
        launch(index_select_kernel<width()>, elementwise_launch(out.rows, out.cols, width), stream,
               args);
      },
      x, out);
}

void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor y, Stream stream) {
  check_index(x, rows, weights, y);
  if (x.rows == 0 || x.cols == 0) return;
  const IndexArgs args{x.row<float>(0),       x.stride,       x.cols,          rows.data(),
                       weights.row<float>(0), weights.stride, y.row<float>(0), y.stride};
  with_width(
      [&](auto width) {
        launch(index_add_kernel<width()>, elementwise_launch(x.rows, x.cols, width), stream, args);
      },
      x, y);
}

}  // namespace sluice::cuda
