// Places of layers' keys and values in the pages of the KV cache, and copies of whole pages. A slot
// is a page elsewhere: the same bytes, padded to whole blocks of direct I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/device/device.h"
#include "src/kv/kv_layout.h"

namespace sluice {

class KvAreas {
 public:
  // Divides `memory`, of `pages` pages. `scales`: each layer's, if the checkpoint has them, or
  // nothing.
  KvAreas(const KvLayout& layout, int64_t pages, std::byte* memory,
          std::span<const KvScales> scales);
  // The caches of each layer, in the order of its specs.
  const std::vector<std::vector<LayerKv>>& layers() const { return layers_; }

  // Copies of a page to and from a slot, as work of `stream`, one command each.
  void gather(DeviceStream& stream, int32_t page, std::byte* to) const;
  void scatter(DeviceStream& stream, const std::byte* from, int32_t page) const;
  void copy(DeviceStream& stream, int32_t from, int32_t to) const;

 private:
  std::byte* at(int32_t page) const { return memory_ + static_cast<uint64_t>(page) * page_bytes_; }

  uint64_t page_bytes_;
  std::byte* memory_;
  std::vector<std::vector<LayerKv>> layers_;
};

}  // namespace sluice
