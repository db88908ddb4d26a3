// The memory of the KV cache, and of blocks evicted from it: slots in host memory and in a
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/device/device.h"
#include "src/kv/block_manager.h"
#include "src/kv/kv_areas.h"
#include "src/kv/swap_file.h"
#include "src/memory/buffer.h"

namespace sluice {

class KvStorage {
 public:
  // Room for blocks that have to leave the device.
  struct Swap {
    int64_t host_blocks = 0;
    int64_t disk_blocks = 0;
    std::filesystem::path directory;  // of these
  };
  // Has `blocks` pages. `scales`: each layer's, where the checkpoint has them, or none. Copies are
  // work of `stream`, a stream of `device`; both outlive the storage. `touch`: of the pages'
  // memory.
  KvStorage(Device& device, DeviceStream& stream, Ledger& ledger, const KvLayout& layout,
            int64_t blocks, const Swap& swap, std::span<const KvScales> scales = {},
            Buffer::Touch touch = Buffer::Touch::now);
  // Waits for restores beside a step; the owner of `stream` has waited for its work.
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;
  // The caches of each layer, in the order of its specs.
  const std::vector<std::vector<LayerKv>>& layers() const { return areas_.layers(); }
  uint64_t slot_bytes() const { return slot_bytes_; }
  const Buffer& memory() const { return buffer_; }  // of the pages
  // A device block to a slot, which is there when this returns; and back, from memory that is not
  // pinned, before the stream's next work.
  void gather(int32_t block, std::span<std::byte> to);
  void scatter(std::span<const std::byte> from, int32_t block);
  // Executes copies in order, after earlier ones and before the stream's next work. Restores to the
  // device end only in finish_copies(), or when the next copies begin.
  void begin_copies(std::span<const BlockCopy> copies);
  void finish_copies();

 private:
  std::span<std::byte> host_slot(int32_t slot) const;
  void begin_copy(const BlockCopy& copy);
  DeviceStream& returning();
  void join();
  void finish_reads();

  DeviceStream& stream_;
  std::unique_ptr<DeviceStream>
      returning_;  // blocks that come back from host memory, beside a step
  std::unique_ptr<DeviceEvent> point_;
  bool apart_ = false;  // stream_ has not waited for returning_ yet
  uint64_t slot_bytes_;
  Buffer buffer_;
  KvAreas areas_;
  Buffer host_;
  std::unique_ptr<Pinned> host_pinned_;
  std::optional<SwapFile> disk_;
  std::vector<int32_t> reading_;  // device blocks that are on their way from there
};

}  // namespace sluice
