#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kMostThreads = kNormMostWarps * 32;
constexpr int kHeld = 4;  // vectors of a row that a thread keeps from one pass to the next

struct NormArgs {
  float* x;         // with kAdd: the residual
  const float* by;  // kAdd: what is added to it
  const void* weight;
  const float* scales;  // of the weight's codes, each for so many columns; null: it has none
  int columns_of_scale;
  float weight_offset;
  const float* bias;     // null: none
  const float* squares;  // of each row, of squares_cols columns; null: of what is normed
  int squares_cols;
  float* y;
  int64_t x_stride, by_stride, y_stride;  // elements
  int cols;
  float eps;
};

// Calls body(column, values) for a thread's columns of one row, kWidth at a time; it may change the
// values. Columns are read once, as far as `held` has room.
template <int kWidth, class Load, class Body>
__device__ void each_column(int cols, Vec<float, kWidth> (&held)[kHeld], Load load, Body body) {
  const int step = static_cast<int>(blockDim.x) * kWidth;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first + i * step < cols) body(first + i * step, held[i]);
  }
  for (int c = first + kHeld * step; c < cols; c += step) {
    auto v = load(c);
    body(c, v);
  }
}

// One block a row, or a part of it: a pass that adds and sums squares (of a layer norm: elements,
// and then the squares of what the mean leaves), another that scales.
template <DType kWeight, int kWidth, bool kAdd, bool kLayer>
__global__ void __launch_bounds__(kMostThreads) norm_kernel(NormArgs a) {
  wait_for_earlier();
  using Values = Vec<float, kWidth>;
  using Codes = Vec<typename Element<kWeight>::Code, kWidth>;
  float* x = a.x + blockIdx.x * a.x_stride + int64_t{blockIdx.y} * a.cols;
  float* y = a.y + blockIdx.x * a.y_stride + int64_t{blockIdx.y} * a.cols;
  const float count = static_cast<float>(a.cols);
  auto load = [&](int c) { return load_as<Values>(x + c); };
  auto load_added = [&](int c) {
    auto v = load(c);
    if constexpr (kAdd) {
      const auto by = load_as<Values>(a.by + blockIdx.x * a.by_stride + c);
      for (int i = 0; i < kWidth; ++i) v.at[i] += by.at[i];
    }
    return v;
  };
  Values held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int c = static_cast<int>(i * blockDim.x + threadIdx.x) * kWidth;
    if (c < a.cols) held[i] = load_added(c);
  }
  float sum = 0, mean = 0;
  each_column<kWidth>(a.cols, held, load_added, [&](int c, Values& v) {
    if constexpr (kAdd) store_as(x + c, v);
    for (int i = 0; i < kWidth; ++i) sum += kLayer ? v.at[i] : v.at[i] * v.at[i];
  });
  sum = block_reduce(sum, Plus{}, &shared_memory<float>());
  const bool given = !kLayer && a.squares != nullptr;
  if (given) sum = a.squares[blockIdx.x];
  if constexpr (kLayer) {
    mean = sum / count;
    sum = 0;
    each_column<kWidth>(a.cols, held, load, [&](int, Values& v) {
      for (int i = 0; i < kWidth; ++i) sum += (v.at[i] - mean) * (v.at[i] - mean);
    });
    __syncthreads();
    sum = block_reduce(sum, Plus{}, &shared_memory<float>());
  }
  const float scale = rsqrtf(sum / (given ? static_cast<float>(a.squares_cols) : count) + a.eps);
  const auto* weight = static_cast<const typename Element<kWeight>::Code*>(a.weight);
  each_column<kWidth>(a.cols, held, load, [&](int c, Values& v) {
    Codes w{};
    if (weight != nullptr) w = load_as<Codes>(weight + c);
    float unit = 1;
    if constexpr (dtype_is_code(kWeight)) unit = a.scales[c / a.columns_of_scale];
    for (int i = 0; i < kWidth; ++i) {
      const float factor =
          a.weight_offset + (weight != nullptr ? unit * Element<kWeight>::decode(w.at[i]) : 1.0f);
      v.at[i] = (v.at[i] - mean) * (scale * factor);
      if (a.bias != nullptr) v.at[i] += a.bias[c + i];
    }
    store_as(y + c, v);
  });
}

template <bool kAdd, bool kLayer>
void launch_norm(Tensor x, Tensor by, const Weight& weight, const NormParams& params, Tensor y,
                 Stream stream) {
  check(dtype_is_code(weight.format.dtype) == (weight.scales != nullptr), "codes have scales");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = static_cast<int>(weight.cols);
  const bool blocks = weight.format.scales == ScaleKind::per_block;
  const NormArgs args{x.row<float>(0),
                      by.row<float>(0),
                      weight.data,
                      weight.scales,
                      blocks ? static_cast<int>(kScaleBlock) : cols,
                      params.weight_offset,
                      params.bias,
                      params.squares,
                      static_cast<int>(params.squares_cols),
                      y.row<float>(0),
                      x.stride,
                      by.stride,
                      y.stride,
                      cols,
                      params.eps};
  auto with = [&](auto dtype, auto width) {
    const uint32_t threads = norm_threads(cols, width);
    const auto parts = static_cast<uint32_t>(x.cols / cols);
    const Launch at{{static_cast<uint32_t>(x.rows), parts}, {threads}, threads / 32 * 4};
    launch_early(norm_kernel<dtype(), width(), kAdd, kLayer>, at, stream, args);
  };
  with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8>(
      weight.format.dtype, [&](auto dtype) {
        with_width([&](auto width) { with(dtype, width); }, x.columns(0, cols), by.columns(0, cols),
                   y.columns(0, cols));
      });
}

// One block a row.
__global__ void __launch_bounds__(kMostThreads)
    sum_squares_kernel(const float* x, int64_t x_stride, int cols, float* sums, int64_t stride) {
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x)) {
    const float v = x[blockIdx.x * x_stride + c];
    sum += v * v;
  }
  sum = block_reduce(sum, Plus{}, &shared_memory<float>());
  if (threadIdx.x == 0) sums[blockIdx.x * stride] = sum;
}

}  // namespace

void sum_squares(Tensor x, Tensor sums, Stream stream) {
  check_sum_squares(x, sums);
  if (x.rows == 0) return;
  const uint32_t threads = block_threads(x.cols, kMostThreads);
  const Launch at{{static_cast<uint32_t>(x.rows)}, {threads}, threads / 32 * 4};
  launch(sum_squares_kernel, at, stream, x.row<float>(0), x.stride, static_cast<int>(x.cols),
         sums.row<float>(0), sums.stride);
}

void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y, Stream stream) {
  check_norm(x, weight, params, y);
  params.kind == NormKind::layer ? launch_norm<false, true>(x, x, weight, params, y, stream)
                                 : launch_norm<false, false>(x, x, weight, params, y, stream);
}

void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params, Tensor y,
              Stream stream) {
  check_norm(residual, weight, params, y);
  check_same_shape(residual, x);
  check(weight.cols == x.cols, "add_norm: of whole rows");
  params.kind == NormKind::layer ? launch_norm<true, true>(residual, x, weight, params, y, stream)
                                 : launch_norm<true, false>(residual, x, weight, params, y, stream);
}

}  // namespace sluice::cuda
