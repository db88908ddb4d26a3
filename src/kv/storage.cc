#include "src/kv/storage.h"

#include <cstring>

namespace sluice {

KvStorage::KvStorage(Ledger& ledger, const KvCache& shape, int64_t layers) {
  int64_t area = shape.blocks * kv_block_bytes(shape);
  buffer_ = Buffer(ledger, Use::kv_cache, "KV cache", static_cast<uint64_t>(2 * layers * area),
                   Buffer::Touch::now);
  for (int64_t l = 0; l < layers; ++l) {
    KvCache cache = shape;
    cache.keys = buffer_.data() + 2 * l * area;
    cache.values = cache.keys + area;
    layers_.push_back(cache);
  }
}

void KvStorage::copy(std::span<const BlockCopy> blocks) {
  for (const KvCache& layer : layers_) {
    auto bytes = static_cast<size_t>(kv_block_bytes(layer));
    for (const BlockCopy& c : blocks) {
      auto from = static_cast<size_t>(c.from) * bytes, to = static_cast<size_t>(c.to) * bytes;
      std::memcpy(layer.keys + to, layer.keys + from, bytes);
      std::memcpy(layer.values + to, layer.values + from, bytes);
    }
  }
}

}  // namespace sluice
