// Root mean squares of rows, by the arithmetic of norm_kernel, for kernels that compute these on
// the way.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace sluice::cuda {

constexpr int kNormWidth = 4;  // columns that a thread takes at a time, where rows are aligned
constexpr int kNormMostWarps = 16;

// Threads of norm_kernel, on which the order of a sum depends.
constexpr uint32_t norm_threads(int64_t cols, int64_t width) {
  return block_threads(cols / width, kNormMostWarps * 32);
}

struct RmsArgs {
  const void* weight;  // null: ones
  DType dtype;         // f32, f16 or bf16
  float weight_offset, eps;
  int warps;  // of norm_kernel; 0: nothing is normed
};

inline bool rms_fits(const InputNorm& norm, int64_t cols) {
  const DType dtype = norm.weight.format.dtype;
  return norm.params.kind == NormKind::rms && norm.params.bias == nullptr &&
         norm.params.squares == nullptr && norm.weight.cols == cols && cols % kNormWidth == 0 &&
         (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
}

inline RmsArgs rms_args(const InputNorm& norm) {
  return {norm.weight.data, norm.weight.format.dtype, norm.params.weight_offset, norm.params.eps,
          static_cast<int>(norm_threads(norm.weight.cols, kNormWidth) / 32)};
}

// The factor of a row's elements. A block of any number of warps sums the squares in the order of
// norm_kernel. partial: shared memory of kNormMostWarps floats, which may be used again after a
// barrier.
__device__ inline float rms_scale(const RmsArgs& a, const float* x, int cols, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % 32, step = a.warps * 32 * kNormWidth;
  for (int warp = static_cast<int>(threadIdx.x) / 32; warp < a.warps;
       warp += static_cast<int>(blockDim.x) / 32) {
    float sum = 0;
    for (int c = (warp * 32 + lane) * kNormWidth; c < cols; c += step) {
      const auto v = load_as<Vec<float, kNormWidth>>(x + c);
      for (int i = 0; i < kNormWidth; ++i) sum += v.at[i] * v.at[i];
    }
    sum = warp_reduce(sum, Plus{});
    if (lane == 0) partial[warp] = sum;
  }
  __syncthreads();
  float sum = partial[0];
  for (int w = 1; w < a.warps; ++w) sum += partial[w];
  return rsqrtf(sum / static_cast<float>(cols) + a.eps);
}

template <DType kDType>
__device__ void scale_by(const RmsArgs& a, int c, float scale, Vec<float, kNormWidth>& x) {
  using Codes = Vec<typename Element<kDType>::Code, kNormWidth>;
  const auto w = load_as<Codes>(static_cast<const typename Element<kDType>::Code*>(a.weight) + c);
  for (int i = 0; i < kNormWidth; ++i)
    x.at[i] *= scale * (a.weight_offset + Element<kDType>::decode(w.at[i]));
}

// Columns of a row, from c on, times its factor and the weight.
__device__ inline void rms_columns(const RmsArgs& a, int c, float scale,
                                   Vec<float, kNormWidth>& x) {
  if (a.weight == nullptr) {
    for (int i = 0; i < kNormWidth; ++i) x.at[i] *= scale * (a.weight_offset + 1);
  } else if (a.dtype == DType::f32) {
    scale_by<DType::f32>(a, c, scale, x);
  } else if (a.dtype == DType::f16) {
    scale_by<DType::f16>(a, c, scale, x);
  } else {
    scale_by<DType::bf16>(a, c, scale, x);
  }
}

}  // namespace sluice::cuda
