// Reshape-and-cache: new keys and values into their blocks, rounded or quantized.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rope.cuh"
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

// A warp (x) stores one head of row blockIdx.x: of its keys (0) or values (1).
template <DType kDType>
__device__ void store_head(const StoreArgs& a, int which, int head) {
  using Code = typename Element<kDType>::Code;
  const int64_t slot = a.slots[blockIdx.x];
  if (slot < 0) return;
  auto of = [which](const auto& both) { return which == 0 ? both[0] : both[1]; };
  const int dim = of(a.dim);
  const float* from = of(a.from) + blockIdx.x * of(a.stride) + int64_t{head} * dim;
  std::byte* block = of(a.to) + slot / a.block_size * a.block_stride;
  const int64_t token = int64_t{head} * a.block_size + slot % a.block_size;  // in the block
  auto* to = reinterpret_cast<Code*>(block) + token * dim;
  float scale = 1;
  if constexpr (sizeof(Code) == 1) {
    const int64_t elements = int64_t{a.heads} * a.block_size * dim;
    scale = of(a.scale);
    if (scale == 0) {
      scale = token_scale<kDType>(from, dim, reinterpret_cast<float*>(block + elements) + token);
    }
  }
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += 32) {
    to[d] = Element<kDType>::encode(from[d] / scale);
  }
}

// Blocks: token, heads, keys or values.
template <DType kDType>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) store_kernel(StoreArgs a) {
  wait_for_earlier();
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (head < a.heads) store_head<kDType>(a, static_cast<int>(blockIdx.z), head);
}

struct Rotated {
  RopeTables tables;
  float* q;
  float* keys;
  int64_t q_stride, keys_stride;
  int heads;  // of queries
};

// Blocks: token, heads: those of queries, keys and values.
template <DType kDType>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) rope_store_kernel(Rotated r, StoreArgs a) {
  wait_for_earlier();
  int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (head >= r.heads + 2 * a.heads) return;
  const bool query = head < r.heads;
  if (!query) head -= r.heads;
  const int which = query || head < a.heads ? 0 : 1;
  if (which == 0) {
    float* x = query ? r.q + blockIdx.x * r.q_stride : r.keys + blockIdx.x * r.keys_stride;
    for (int i = static_cast<int>(threadIdx.x); i < r.tables.half; i += 32)
      rotate_pair(r.tables, x + int64_t{head} * a.dim[0], i);
  }
  if (query) return;
  __syncwarp();  // other lanes store what this one has rotated
  store_head<kDType>(a, which, head - which * a.heads);
}

StoreArgs store_args(const Tensor& keys, const Tensor& values, const int64_t* slots,
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

Launch warp_a_head(int64_t rows, int64_t heads, uint32_t kinds) {
  const auto blocks = static_cast<uint32_t>(ceil_div(heads, int64_t{kWarpsOfBlock}));
  return {{static_cast<uint32_t>(rows), blocks, kinds}, {32, kWarpsOfBlock}};
}

}  // namespace

bool is_wide(const KvCache& cache) {
  auto fits = [](int64_t dim) { return dim % 8 == 0 && dim <= 256; };
  return cache.latent || !fits(cache.key_dim) || !fits(cache.value_dim);
}

void check_paged_cache(const KvCache& cache) {
  check(cache.keys != nullptr && cache.values != nullptr, "cache has storage");
  check(cache.block_size > 0 && cache.kv_heads > 0, "cache has a shape");
  for (int64_t dim : {cache.key_dim, cache.value_dim})
    check(dim > 0 && dim % kHeadUnit == 0 && dim <= kMostHeadDim, "heads of 4, 8, ... elements");
  check(kv_key_bytes(cache) % kRunBytes == 0 && cache.block_stride % kRunBytes == 0,
        "runs that begin at multiples of 8 bytes");
  check((cache.key_scale > 0) == (cache.value_scale > 0), "scales for keys and values or none");
}

void store_kv(Tensor keys, Tensor values, const int64_t* slots, const KvCache& cache,
              Stream stream) {
  const StoreArgs args = store_args(keys, values, slots, cache);
  if (keys.rows == 0) return;
  const Launch at = warp_a_head(keys.rows, cache.kv_heads, cache.latent ? 1 : 2);
  with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(
      cache.dtype, [&](auto dtype) { launch_early(store_kernel<dtype()>, at, stream, args); });
}

void rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                   Tensor sin, const int64_t* slots, const KvCache& cache, Stream stream) {
  const StoreArgs args = store_args(keys, values, slots, cache);
  check(!cache.latent && q.rows == keys.rows, "rope_store_kv: rows of all three");
  check_rope(q, cache.key_dim, cos, sin);
  check_rope(keys, cache.key_dim, cos, sin);
  if (keys.rows == 0) return;
  const Rotated rotated{rope_tables(pairing, cos, sin),
                        q.row<float>(0),
                        keys.row<float>(0),
                        q.stride,
                        keys.stride,
                        static_cast<int>(q.cols / cache.key_dim)};
  const Launch at = warp_a_head(keys.rows, rotated.heads + 2 * cache.kv_heads, 1);
  with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(cache.dtype, [&](auto dtype) {
    launch_early(rope_store_kernel<dtype()>, at, stream, rotated, args);
  });
}

}  // namespace sluice::cuda
