#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kMostThreads = 512;

struct NormArgs {
  float* x;         // with kAdd: the residual
  const float* by;  // kAdd: what is added to it
  const void* weight;
  const float* scales;  // of the weight's codes, each for so many columns; null: it has none
  int columns_of_scale;
  float* y;
  int64_t x_stride, by_stride, y_stride;  // elements
  int cols;
  float eps;
};

// One block a row: a pass that adds and sums squares, another that scales what the first has left
// in the cache. kWidth elements at a time.
template <DType kWeight, int kWidth, bool kAdd>
__global__ void __launch_bounds__(kMostThreads) norm_kernel(NormArgs a) {
  using Values = Vec<float, kWidth>;
  using Codes = Vec<typename Element<kWeight>::Code, kWidth>;
  float* x = a.x + blockIdx.x * a.x_stride;
  float* y = a.y + blockIdx.x * a.y_stride;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  float squares = 0;
  for (int c = first; c < a.cols; c += step) {
    auto v = load_as<Values>(x + c);
    if constexpr (kAdd) {
      const auto by = load_as<Values>(a.by + blockIdx.x * a.by_stride + c);
      for (int i = 0; i < kWidth; ++i) v.at[i] += by.at[i];
      store_as(x + c, v);
    }
    for (int i = 0; i < kWidth; ++i) squares += v.at[i] * v.at[i];
  }
  squares = block_reduce(squares, Plus{}, &shared_memory<float>());
  const float scale = rsqrtf(squares / static_cast<float>(a.cols) + a.eps);
  const auto* weight = static_cast<const typename Element<kWeight>::Code*>(a.weight);
  for (int c = first; c < a.cols; c += step) {
    auto v = load_as<Values>(x + c);
    const auto w = load_as<Codes>(weight + c);
    float factor = scale;
    if constexpr (dtype_is_code(kWeight)) factor *= a.scales[c / a.columns_of_scale];
    for (int i = 0; i < kWidth; ++i) v.at[i] *= factor * Element<kWeight>::decode(w.at[i]);
    store_as(y + c, v);
  }
}

template <bool kAdd>
void launch_norm(Tensor x, Tensor by, const Weight& weight, float eps, Tensor y, Stream stream) {
  check_rms_norm(x, weight, y);
  check(dtype_is_code(weight.format.dtype) == (weight.scales != nullptr), "codes have scales");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = static_cast<int>(x.cols);
  const bool blocks = weight.format.scales == ScaleKind::per_block;
  const NormArgs args{x.row<float>(0),
                      by.row<float>(0),
                      weight.data,
                      weight.scales,
                      blocks ? static_cast<int>(kScaleBlock) : cols,
                      y.row<float>(0),
                      x.stride,
                      by.stride,
                      y.stride,
                      cols,
                      eps};
  auto with = [&](auto dtype, auto width) {
    const uint32_t threads = block_threads(x.cols / width, kMostThreads);
    const Launch at{{static_cast<uint32_t>(x.rows)}, {threads}, threads / 32 * 4};
    launch(norm_kernel<dtype(), width(), kAdd>, at, stream, args);
  };
  with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8>(
      weight.format.dtype,
      [&](auto dtype) { with_width([&](auto width) { with(dtype, width); }, x, by, y); });
}

}  // namespace

void rms_norm(Tensor x, const Weight& weight, float eps, Tensor y, Stream stream) {
  launch_norm<false>(x, x, weight, eps, y, stream);
}

void add_rms_norm(Tensor residual, Tensor x, const Weight& weight, float eps, Tensor y,
                  Stream stream) {
  check_same_shape(residual, x);
  launch_norm<true>(residual, x, weight, eps, y, stream);
}

}  // namespace sluice::cuda
