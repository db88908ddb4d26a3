#include "src/kv/storage.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

uint64_t kv_block_bytes(const KvCache& shape, int64_t areas) {
  return 2 * static_cast<uint64_t>(areas * kv_block_bytes(shape));
}

uint64_t kv_slot_bytes(const KvCache& shape, int64_t areas) {
  return round_up(kv_block_bytes(shape, areas), io::kDirectAlignment);
}

KvStorage::KvStorage(Device& device, DeviceStream& stream, Ledger& ledger, const KvCache& shape,
                     std::span<const int64_t> areas, const Swap& swap,
                     std::span<const KvScales> scales)
    : stream_(stream), run_bytes_(static_cast<uint64_t>(kv_block_bytes(shape))) {
  int64_t count = 1 + *std::ranges::max_element(areas);
  slot_bytes_ = kv_slot_bytes(shape, count);
  uint64_t area = static_cast<uint64_t>(shape.blocks) * run_bytes_;
  buffer_ = device.memory(ledger, Use::kv_cache, "KV cache",
                          2 * static_cast<uint64_t>(count) * area, Buffer::Touch::now);
  for (int64_t a = 0; a < count; ++a) {
    KvCache cache = shape;
    cache.keys = buffer_.data() + 2 * static_cast<uint64_t>(a) * area;
    cache.values = cache.keys + area;
    areas_.push_back(cache);
  }
  for (int64_t a : areas) layers_.push_back(areas_[static_cast<size_t>(a)]);
  check(scales.empty() || scales.size() == layers_.size(), "scales of each layer, or none");
  for (size_t l = 0; l < scales.size(); ++l) {
    layers_[l].key_scale = scales[l].key;
    layers_[l].value_scale = scales[l].value;
  }
  if (swap.host_blocks > 0) {
    host_ = Buffer(ledger, Use::swap, "KV swap space",
                   static_cast<uint64_t>(swap.host_blocks) * slot_bytes_, Buffer::Touch::lazily);
    host_pinned_ = device.pin(host_.bytes());
  }
  if (swap.disk_blocks > 0) disk_.emplace(ledger, swap.directory, swap.disk_blocks, slot_bytes_);
}

std::span<std::byte> KvStorage::host_slot(int32_t slot) const {
  return host_.bytes().subspan(static_cast<size_t>(slot) * slot_bytes_, slot_bytes_);
}

void KvStorage::copy_within(int32_t from, int32_t to) {
  for (const KvCache& area : areas_) {
    for (std::byte* side : {area.keys, area.values}) {
      stream_.copy(side + static_cast<size_t>(to) * run_bytes_,
                   side + static_cast<size_t>(from) * run_bytes_, run_bytes_);
    }
  }
}

void KvStorage::begin_gather(int32_t block, std::span<std::byte> to) {
  std::byte* at = to.data();
  for (const KvCache& area : areas_) {
    for (const std::byte* side : {area.keys, area.values}) {
      stream_.copy(at, side + static_cast<size_t>(block) * run_bytes_, run_bytes_);
      at += run_bytes_;
    }
  }
}

void KvStorage::gather(int32_t block, std::span<std::byte> to) {
  begin_gather(block, to);
  stream_.synchronize();
}

void KvStorage::scatter(std::span<const std::byte> from, int32_t block) {
  const std::byte* at = from.data();
  for (const KvCache& area : areas_) {
    for (std::byte* side : {area.keys, area.values}) {
      stream_.copy(side + static_cast<size_t>(block) * run_bytes_, at, run_bytes_);
      at += run_bytes_;
    }
  }
}

// All but what comes from disk.
void KvStorage::copy_one(const BlockCopy& copy) {
  auto [from, to] = copy;
  if (from.tier == Tier::device && to.tier == Tier::device) {
    copy_within(from.block, to.block);
  } else if (from.tier == Tier::device && to.tier == Tier::host) {
    begin_gather(from.block, host_slot(to.block));
  } else if (from.tier == Tier::device && to.tier == Tier::disk) {
    gather(from.block, disk_->begin_write());
    disk_->write(to.block);
  } else if (from.tier == Tier::host && to.tier == Tier::disk) {
    stream_.synchronize();  // it may be on its way there
    std::ranges::copy(host_slot(from.block), disk_->begin_write().begin());
    disk_->write(to.block);
  } else {
    check(from.tier == Tier::host && to.tier == Tier::device, "a KV block is copied nowhere");
    scatter(host_slot(from.block), to.block);
  }
}

void KvStorage::read_from_disk(std::span<const BlockCopy> copies) {
  disk_->finish_writes();
  io::Reader& reader = disk_->reader();
  size_t asked = 0;
  for (size_t arrived = 0; arrived < copies.size(); ++arrived) {
    for (; asked < copies.size() && reader.free_slots() > 0; ++asked) {
      io::ReadRequest request = disk_->read_request(copies[asked].from.block);
      request.tag = asked;
      reader.submit(request);
    }
    io::ReadResult result = reader.wait();
    scatter(result.bytes, copies[result.tag].to.block);
    stream_.synchronize();
    reader.release(result);
  }
}

void KvStorage::copy(std::span<const BlockCopy> copies) {
  auto to_read = [](const BlockCopy& c) { return c.from.tier == Tier::disk; };
  while (!copies.empty()) {
    auto end = std::ranges::find_if_not(copies, to_read);
    auto reads = static_cast<size_t>(end - copies.begin());
    if (reads > 0) {
      read_from_disk(copies.first(reads));
    } else {
      copy_one(copies.front());
    }
    copies = copies.subspan(std::max<size_t>(reads, 1));
  }
}

}  // namespace sluice
