#include <cstring>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/float8.h"

namespace sluice {
namespace {

void store(const float* from, int64_t count, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t code = float_to_bf16(from[i]);
    std::memcpy(to + 2 * i, &code, sizeof code);
  }
}

}  // namespace

void ReferenceKernels::store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                                const KvCache& cache) const {
  check_store_kv(keys, values, slots, cache);
  for (int64_t r = 0; r < keys.rows; ++r) {
    int64_t slot = slots[static_cast<size_t>(r)];
    int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
    for (int64_t h = 0; h < cache.kv_heads; ++h) {
      int64_t token = (block * cache.kv_heads + h) * cache.block_size + offset;
      int64_t at = token * cache.head_dim * dtype_bytes(cache.dtype);
      store(keys.row<float>(r) + h * cache.head_dim, cache.head_dim, cache.dtype, cache.keys + at);
      store(values.row<float>(r) + h * cache.head_dim, cache.head_dim, cache.dtype,
            cache.values + at);
    }
  }
}

}  // namespace sluice
