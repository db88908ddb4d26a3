#include <cstring>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/float8.h"

namespace sluice {
namespace {

void store(const float* from, int64_t count, DType dtype, float scale, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::f32) {
      std::memcpy(to + 4 * i, from + i, sizeof(float));
    } else if (dtype == DType::bf16) {
      uint16_t code = float_to_bf16(from[i]);
      std::memcpy(to + 2 * i, &code, sizeof code);
    } else {
      float x = from[i] / scale;
      to[i] = std::byte{dtype == DType::f8_e4m3 ? float_to_e4m3(x) : float_to_e5m2(x)};
    }
  }
}

// The row of keys, or of values, of one token: `dim` elements a head. `scale`: of the whole cache,
// 0 if each token and head has its own.
void store_token(const float* from, const KvCache& cache, int64_t dim, int64_t slot, float scale,
                 std::byte* blocks) {
  const int64_t token = slot % cache.block_size;
  std::byte* block = blocks + slot / cache.block_size * cache.block_stride;
  for (int64_t head = 0; head < cache.kv_heads; ++head, from += dim) {
    if (kv_stores_scales(cache)) {
      float largest = absolute_max(reinterpret_cast<const std::byte*>(from), DType::f32, 0, 1, dim);
      scale = code_scale(cache.dtype, largest);
      std::memcpy(block + kv_scale_offset(cache, dim, head, token), &scale, sizeof scale);
    }
    store(from, dim, cache.dtype, scale, block + kv_element_offset(cache, dim, head, token));
  }
}

}  // namespace

void ReferenceKernels::store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                                const KvCache& cache) const {
  check_store_kv(keys, values, slots, cache);
  for (int64_t r = 0; r < keys.rows; ++r) {
    int64_t slot = slots[static_cast<size_t>(r)];
    if (slot < 0) continue;
    store_token(keys.row<float>(r), cache, cache.key_dim, slot, cache.key_scale, cache.keys);
    if (cache.latent) continue;
    store_token(values.row<float>(r), cache, cache.value_dim, slot, cache.value_scale,
                cache.values);
  }
}

}  // namespace sluice
