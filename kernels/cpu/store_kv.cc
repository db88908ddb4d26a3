#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                          const KvCache& cache) const {
  check_store_kv(keys, values, slots, cache);
  const int64_t bytes = cache.head_dim * dtype_bytes(cache.dtype);
  auto store = [&](const float* from, std::byte* to) {
    if (cache.dtype == DType::bf16) {
      ops_.to_bf16(from, cache.head_dim, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  };
  for_rows(keys, [&](int64_t row) {
    const int64_t slot = slots[static_cast<size_t>(row)];
    const int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
    for (int64_t h = 0; h < cache.kv_heads; ++h) {
      const int64_t at = ((block * cache.kv_heads + h) * cache.block_size + offset) * bytes;
      store(keys.row<float>(row) + h * cache.head_dim, cache.keys + at);
      store(values.row<float>(row) + h * cache.head_dim, cache.values + at);
    }
  });
}

}  // namespace sluice
