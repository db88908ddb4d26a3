// The memory of the KV cache: one buffer, divided into a key and a value area for each layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/kv/block_table.h"
#include "src/memory/buffer.h"

namespace sluice {

class KvStorage {
 public:
  // `shape` gives dtype, blocks, block_size, kv_heads and head_dim of every layer.
  KvStorage(Ledger& ledger, const KvCache& shape, int64_t layers);
  const std::vector<KvCache>& layers() const { return layers_; }
  // In their order, in every layer.
  void copy(std::span<const BlockCopy> blocks);

 private:
  Buffer buffer_;
  std::vector<KvCache> layers_;
};

}  // namespace sluice
