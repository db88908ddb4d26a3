// The memory of the KV cache, and of what is swapped out of it: to slots in host memory, and in a
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
  // Where blocks that have to leave the device are kept.
  struct Swap {
    int64_t host_blocks = 0;
    int64_t disk_blocks = 0;
    std::filesystem::path directory;  // of these
  };
  // `shape` gives dtype, blocks, block_size, kv_heads, key_dim and value_dim of every layer;
  // `areas` which area each layer uses, of as many as the largest says; `scales` each layer's,
  // where the checkpoint has them, or nothing. Copies are work of `stream`, which is one of
  // `device`; both outlive the storage.
  KvStorage(Device& device, DeviceStream& stream, Ledger& ledger, const KvCache& shape,
            std::span<const int64_t> areas, const Swap& swap,
            std::span<const KvScales> scales = {});
  // Waits for what comes back beside a step; whoever owns `stream` has waited for that.
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;
  const std::vector<KvCache>& layers() const { return layers_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // A device block to a slot, which is there when this returns; and back, from memory that is not
  // pinned, before the stream's next work.
  void gather(int32_t block, std::span<std::byte> to);
  void scatter(std::span<const std::byte> from, int32_t block);
  // In their order, after those that were begun before, and before the stream's next work; but what
  // comes back to the device is there only after finish_copies(), or when the next ones begin.
  void begin_copies(std::span<const BlockCopy> copies);
  void finish_copies();

 private:
  std::span<std::byte> host_slot(int32_t slot) const;
  void begin_copy(const BlockCopy& copy);
  DeviceStream& returning();
  void join();

  DeviceStream& stream_;
  std::unique_ptr<DeviceStream> returning_;  // what comes back from host memory, beside a step
  std::unique_ptr<DeviceEvent> point_;
  bool apart_ = false;  // stream_ has not waited for returning_ yet
  uint64_t slot_bytes_;
  Buffer buffer_;
  KvAreas areas_;
  Buffer host_;
  std::unique_ptr<Pinned> host_pinned_;
  std::optional<SwapFile> disk_;
  std::vector<KvCache> layers_;
};

}  // namespace sluice
