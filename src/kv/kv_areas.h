// Where the parts of the KV cache's blocks lie, and copies of whole blocks.
//
// A device block belongs to one group of layers: for each of its areas, of which a layer of the
// group uses one, it has a run of keys and a run of values, one after the other without gaps. A
// slot is a block elsewhere: the same bytes, padded to whole pages of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/device/device.h"

namespace sluice {

// Bytes of a block, and of a slot; `shape` is that of every area: dtype, block_size, kv_heads,
// key_dim and value_dim.
uint64_t kv_block_bytes(const KvCache& shape, int64_t areas);
uint64_t kv_slot_bytes(const KvCache& shape, int64_t areas);

class KvAreas {
 public:
  // In `memory`, of kv_block_bytes() for each of shape.blocks.
  KvAreas(const KvCache& shape, int64_t areas, std::byte* memory);
  const KvCache& operator[](int64_t area) const { return areas_[static_cast<size_t>(area)]; }

  // Work of `stream`, one command each. To and from a slot.
  void gather(DeviceStream& stream, int32_t block, std::byte* to) const;
  void scatter(DeviceStream& stream, const std::byte* from, int32_t block) const;
  void copy(DeviceStream& stream, int32_t from, int32_t to) const;

 private:
  std::byte* at(int32_t block) const {
    return memory_ + static_cast<uint64_t>(block) * block_bytes_;
  }

  uint64_t block_bytes_;
  std::byte* memory_;
  std::vector<KvCache> areas_;
};

}  // namespace sluice
