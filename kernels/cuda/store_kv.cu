// Reshape-and-cache: new keys and values into their blocks, rounded or quantized.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/rope.cuh"
#include "kernels/cuda/store_kv.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kWarpsOfBlock = 4;

// Blocks: token, heads, keys or values.
template <DType kDType>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) store_kernel(StoreArgs a) {
  wait_for_earlier();
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int which = static_cast<int>(blockIdx.z);
  if (head < a.heads) store_head<kDType>(a, which, head, head_of(a, which, head));
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
  head -= which * a.heads;
  store_head<kDType>(a, which, head, head_of(a, which, head));
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
