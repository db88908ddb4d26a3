// Reshape-and-cache: new keys and values into their blocks, rounded or quantized.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kWarpsOfBlock = 4;

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
__device__ float token_scale(const float* x, int dim, float* stored) {
  float top = 0;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += 32) {
    const float magnitude = fabsf(x[d]);
    if (magnitude < std::bit_cast<float>(kFloatInfinityBits)) top = fmaxf(top, magnitude);
  }
  top = warp_reduce(top, Larger{});
  float scale = top / Element<kDType>::kMax;
  scale = scale > 0 ? scale : 1.0f;
  if (threadIdx.x == 0) *stored = scale;
  return scale;
}

// A warp (x) stores one head of one token's keys or values; blocks: token, heads, keys or values.
template <DType kDType>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) store_kernel(StoreArgs a) {
  using Code = typename Element<kDType>::Code;
  const int64_t slot = a.slots[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (slot < 0 || head >= a.heads) return;
  const int which = static_cast<int>(blockIdx.z), dim = a.dim[which];
  const float* from = a.from[which] + blockIdx.x * a.stride[which] + int64_t{head} * dim;
  std::byte* block = a.to[which] + slot / a.block_size * a.block_stride;
  const int64_t token = int64_t{head} * a.block_size + slot % a.block_size;  // in the block
  auto* to = reinterpret_cast<Code*>(block) + token * dim;
  float scale = 1;
  if constexpr (sizeof(Code) == 1) {
    const int64_t elements = int64_t{a.heads} * a.block_size * dim;
    scale = a.scale[which];
    if (scale == 0) {
      scale = token_scale<kDType>(from, dim, reinterpret_cast<float*>(block + elements) + token);
    }
  }
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += 32) {
    to[d] = Element<kDType>::encode(from[d] / scale);
  }
}

}  // namespace

void check_paged_cache(const KvCache& cache) {
  check(cache.keys != nullptr && cache.values != nullptr, "cache has storage");
  check(cache.block_size > 0 && cache.kv_heads > 0, "cache has a shape");
  for (int64_t dim : {cache.key_dim, cache.value_dim})
    check(dim > 0 && dim % 8 == 0 && dim <= kMostHeadDim, "heads of 8, 16, ... 256 elements");
  check(kv_key_bytes(cache) % 8 == 0 && cache.block_stride % 8 == 0,
        "runs that begin at multiples of 8 bytes");
  check((cache.key_scale > 0) == (cache.value_scale > 0), "scales for keys and values or none");
}

void store_kv(Tensor keys, Tensor values, const int64_t* slots, const KvCache& cache,
              Stream stream) {
  check_paged_cache(cache);
  check(keys.rows == values.rows && keys.cols == cache.kv_heads * cache.key_dim &&
            values.cols == cache.kv_heads * cache.value_dim,
        "store_kv: a row has all heads");
  if (keys.rows == 0) return;
  const StoreArgs args{{keys.row<float>(0), values.row<float>(0)},
                       {keys.stride, values.stride},
                       {cache.keys, cache.values},
                       {cache.key_scale, cache.value_scale},
                       slots,
                       cache.block_stride,
                       static_cast<int>(cache.block_size),
                       static_cast<int>(cache.kv_heads),
                       {static_cast<int>(cache.key_dim), static_cast<int>(cache.value_dim)}};
  const uint32_t heads = static_cast<uint32_t>(cache.kv_heads);
  const Launch at{{static_cast<uint32_t>(keys.rows), (heads + kWarpsOfBlock - 1) / kWarpsOfBlock,
                   cache.latent ? 1u : 2u},
                  {32, kWarpsOfBlock}};
  with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(
      cache.dtype, [&](auto dtype) { launch(store_kernel<dtype()>, at, stream, args); });
}

}  // namespace sluice::cuda
