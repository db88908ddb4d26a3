// Where the parts of the KV cache's blocks lie, and copies of whole blocks.
//
// A device block belongs to one group of layers: for each of its areas, of which a layer of the
// group uses one, it has a run of keys and a run of values. Areas lie one after the other, so that
// a layer's blocks are an array, and a block's runs are equally far apart. A slot is a block
// elsewhere: its runs, keys and values of each area in turn, without gaps, padded to whole pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/device/device.h"

namespace sluice {

// Bytes of a block, and of a slot; `shape` is that of every area: dtype, block_size, kv_heads and
// head_dim.
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
  std::byte* at(int32_t block) const {  // its first run
    return memory_ + static_cast<uint64_t>(block) * run_bytes_;
  }

  uint64_t runs_;  // of a block
  uint64_t run_bytes_;
  uint64_t pitch_;  // from one to the next
  std::byte* memory_;
  std::vector<KvCache> areas_;
};

}  // namespace sluice
