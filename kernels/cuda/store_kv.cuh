// Stores of new keys and values, rounded or quantized, into their blocks.
#pragma once

#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

struct StoreArgs {
  const float* from[2];  // keys, values
  int64_t stride[2];
  std::byte* to[2];
  float scale[2];  // of the layer; 0: one for each token and head
  const int64_t* slots;
  int64_t block_stride;  // bytes
  int block_size, heads;
  int dim[2];  // elements of a head
};

// The scale of one head of one token, which the warp also writes behind the block's elements.
template <DType kDType>
__device__ float new_scale(const float* x, int dim, float* stored) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float top = 0;
  for (int d = lane; d < dim; d += 32) {
    const float magnitude = fabsf(x[d]);
    if (magnitude < std::bit_cast<float>(kFloatInfinityBits)) top = fmaxf(top, magnitude);
  }
  top = warp_reduce(top, Larger{});
  float scale = top / Element<kDType>::kMax;
  scale = scale > 0 ? scale : 1.0f;
  if (lane == 0) *stored = scale;
  return scale;
}

// Either one's value for keys (0) or values (1).
template <class T>
__device__ T of_either(const T (&both)[2], int which) {
  return which == 0 ? both[0] : both[1];
}

// A head of row blockIdx.x.
__device__ inline const float* head_of(const StoreArgs& a, int which, int head) {
  return of_either(a.from, which) + blockIdx.x * of_either(a.stride, which) +
         int64_t{head} * of_either(a.dim, which);
}

// A warp stores `from` as a head of row blockIdx.x: of its keys or values.
template <DType kDType>
__device__ void store_head(const StoreArgs& a, int which, int head, const float* from) {
  using Code = typename Element<kDType>::Code;
  const int64_t slot = a.slots[blockIdx.x];
  if (slot < 0) return;
  const int dim = of_either(a.dim, which);
  std::byte* block = of_either(a.to, which) + slot / a.block_size * a.block_stride;
  const int64_t token = int64_t{head} * a.block_size + slot % a.block_size;  // in the block
  auto* to = reinterpret_cast<Code*>(block) + token * dim;
  float scale = 1;
  if constexpr (sizeof(Code) == 1) {
    const int64_t elements = int64_t{a.heads} * a.block_size * dim;
    scale = of_either(a.scale, which);
    if (scale == 0)
      scale = new_scale<kDType>(from, dim, reinterpret_cast<float*>(block + elements) + token);
  }
  for (int d = static_cast<int>(threadIdx.x) % 32; d < dim; d += 32)
    to[d] = Element<kDType>::encode(from[d] / scale);
}

inline StoreArgs store_args(const Tensor& keys, const Tensor& values, const int64_t* slots,
                            const KvCache& cache) {
  check_paged_cache(cache);
  check(keys.rows == values.rows && keys.cols == cache.kv_heads * cache.key_dim &&
            values.cols == cache.kv_heads * cache.value_dim,
        "store_kv: a row has all heads");
  return {{keys.row<float>(0), values.row<float>(0)},
          {keys.stride, values.stride},
          {cache.keys, cache.values},
          {cache.key_scale, cache.value_scale},
          slots,
          cache.block_stride,
          static_cast<int>(cache.block_size),
          static_cast<int>(cache.kv_heads),
          {static_cast<int>(cache.key_dim), static_cast<int>(cache.value_dim)}};
}

}  // namespace sluice::cuda
