#include "src/kv/storage.h"

namespace sluice {

KvStorage::KvStorage(Ledger& ledger, const KvCache& shape, int64_t layers) {
  int64_t area =
      shape.blocks * shape.block_size * shape.kv_heads * shape.head_dim * dtype_bytes(shape.dtype);
  buffer_ = Buffer(ledger, Use::kv_cache, "KV cache", static_cast<uint64_t>(2 * layers * area),
                   Buffer::Touch::now);
  for (int64_t l = 0; l < layers; ++l) {
    KvCache cache = shape;
    cache.keys = buffer_.data() + 2 * l * area;
    cache.values = cache.keys + area;
    layers_.push_back(cache);
  }
}

}  // namespace sluice
