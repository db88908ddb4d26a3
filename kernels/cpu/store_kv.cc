#include <bit>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

// The row of keys, or of values, of one token: `dim` elements a head. `scale`: of the whole cache,
// 0 if each token and head has its own.
void store_token(const cpu::Ops& ops, const float* from, const KvCache& cache, int64_t dim,
                 int64_t slot, float scale, std::byte* blocks) {
  const int64_t token = slot % cache.block_size;
  std::byte* block = blocks + slot / cache.block_size * cache.block_stride;
  for (int64_t head = 0; head < cache.kv_heads; ++head, from += dim) {
    std::byte* to = block + kv_element_offset(cache, dim, head, token);
    if (kv_stores_scales(cache)) {
      const uint32_t largest =
          ops.largest(reinterpret_cast<const std::byte*>(from), DType::f32, dim);
      scale = code_scale(cache.dtype, std::bit_cast<float>(largest));
      std::memcpy(block + kv_scale_offset(cache, dim, head, token), &scale, sizeof scale);
    }
    if (is_float8(cache.dtype)) {
      ops.to_float8(from, dim, cache.dtype, scale, to);
    } else if (cache.dtype == DType::bf16) {
      ops.to_bf16(from, dim, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
    }
  }
}

}  // namespace

void CpuKernels::store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                          const KvCache& cache) const {
  check_store_kv(keys, values, slots, cache);
  for_rows(keys, [&](int64_t row) {
    const int64_t slot = slots[static_cast<size_t>(row)];
    if (slot < 0) return;
    store_token(ops_, keys.row<float>(row), cache, cache.key_dim, slot, cache.key_scale,
                cache.keys);
    if (cache.latent) return;
    store_token(ops_, values.row<float>(row), cache, cache.value_dim, slot, cache.value_scale,
                cache.values);
  });
}

}  // namespace sluice
