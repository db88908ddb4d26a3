// The memory of the KV cache, and of what is swapped out of it.
//
// A device block belongs to one group of layers: for each of its areas, of which a layer of the
// group uses one, it has a run of keys and a run of values. Areas lie one after the other, so that
// a layer's blocks are an array. Elsewhere a block is one run: keys and values of each area in
// turn, padded to whole pages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/device/device.h"
#include "src/kv/block_manager.h"
#include "src/kv/swap_file.h"
#include "src/memory/buffer.h"

namespace sluice {

// Bytes of a block: on the device, and elsewhere. `shape` as KvStorage takes it.
uint64_t kv_block_bytes(const KvCache& shape, int64_t areas);
uint64_t kv_slot_bytes(const KvCache& shape, int64_t areas);

class KvStorage {
 public:
  // Where blocks that have to leave the device are kept.
  struct Swap {
    int64_t host_blocks = 0;
    int64_t disk_blocks = 0;
    std::filesystem::path directory;  // of these
  };
  // `shape` gives dtype, blocks, block_size, kv_heads and head_dim of every layer; `areas` which
  // area each layer uses, of as many as the largest says; `scales` each layer's, where the
  // checkpoint has them, or nothing. Copies are work of `stream`, which is one of `device`; both
  // outlive the storage.
  KvStorage(Device& device, DeviceStream& stream, Ledger& ledger, const KvCache& shape,
            std::span<const int64_t> areas, const Swap& swap,
            std::span<const KvScales> scales = {});
  const std::vector<KvCache>& layers() const { return layers_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // A device block to one run of slot_bytes(), which is there when this returns; and back, from
  // memory that is not pinned, before the stream's next work.
  void gather(int32_t block, std::span<std::byte> to);
  void scatter(std::span<const std::byte> from, int32_t block);
  // In their order, in all areas, before the stream's next work.
  void copy(std::span<const BlockCopy> blocks);

 private:
  std::span<std::byte> host_slot(int32_t slot) const;
  void copy_within(int32_t from, int32_t to);
  void begin_gather(int32_t block, std::span<std::byte> to);
  void copy_one(const BlockCopy& copy);
  void read_from_disk(std::span<const BlockCopy> copies);

  DeviceStream& stream_;
  uint64_t run_bytes_;  // of the keys, or values, of a block's area
  uint64_t slot_bytes_;
  Buffer buffer_;
  Buffer host_;
  std::unique_ptr<Pinned> host_pinned_;
  std::optional<SwapFile> disk_;
  std::vector<KvCache> areas_;
  std::vector<KvCache> layers_;
};

}  // namespace sluice
