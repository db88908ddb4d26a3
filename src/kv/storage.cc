#include "src/kv/storage.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {

KvStorage::KvStorage(Device& device, DeviceStream& stream, Ledger& ledger, const KvLayout& layout,
                     int64_t blocks, const Swap& swap, std::span<const KvScales> scales,
                     Buffer::Touch touch)
    : stream_(stream),
      returning_(device.stream()),
      point_(device.event()),
      slot_bytes_(layout.slot_bytes()),
      buffer_(device.memory(ledger, Use::kv_cache, "KV cache",
                            static_cast<uint64_t>(blocks) * layout.page_bytes(), touch)),
      areas_(layout, blocks, buffer_.data(), scales) {
  if (swap.host_blocks > 0) {
    host_ = Buffer(ledger, Use::swap, "KV swap space",
                   static_cast<uint64_t>(swap.host_blocks) * slot_bytes_, Buffer::Touch::lazily);
    host_pinned_ = device.pin(host_.bytes());
  }
  if (swap.disk_blocks > 0) {
    disk_.emplace(ledger, swap.directory, swap.disk_blocks, slot_bytes_, areas_, device.stream());
  }
}

KvStorage::~KvStorage() {
  try {
    returning_->synchronize();
  } catch (const Error&) {  // nobody needs what was to come
  }
}

std::span<std::byte> KvStorage::host_slot(int32_t slot) const {
  return host_.bytes().subspan(static_cast<size_t>(slot) * slot_bytes_, slot_bytes_);
}

void KvStorage::gather(int32_t block, std::span<std::byte> to) {
  areas_.gather(stream_, block, to.data());
  stream_.synchronize();
}

void KvStorage::scatter(std::span<const std::byte> from, int32_t block) {
  areas_.scatter(stream_, from.data(), block);
}

// Returns the stream on which blocks come back. Its first use waits for all earlier work of the
// main stream.
DeviceStream& KvStorage::returning() {
  if (!std::exchange(apart_, true)) {
    stream_.record(*point_);
    returning_->wait(*point_);
  }
  return *returning_;
}

void KvStorage::join() {
  if (!std::exchange(apart_, false)) return;
  returning_->record(*point_);
  stream_.wait(*point_);
}

void KvStorage::begin_copy(const BlockCopy& copy) {
  auto [from, to] = copy;
  if (from.tier == Tier::device && std::ranges::find(reading_, from.block) != reading_.end())
    finish_reads();  // a state that comes back, and is copied before it changes
  if (from.tier == Tier::host && to.tier == Tier::device) {
    return areas_.scatter(returning(), host_slot(from.block).data(), to.block);
  }
  join();
  if (from.tier == Tier::device && to.tier == Tier::device) {
    areas_.copy(stream_, from.block, to.block);
  } else if (from.tier == Tier::device && to.tier == Tier::host) {
    areas_.gather(stream_, from.block, host_slot(to.block).data());
  } else if (from.tier == Tier::device && to.tier == Tier::disk) {
    gather(from.block, disk_->begin_write());
    disk_->write(to.block);
  } else if (from.tier == Tier::host && to.tier == Tier::disk) {
    stream_.synchronize();  // it may be on its way there
    std::ranges::copy(host_slot(from.block), disk_->begin_write().begin());
    disk_->write(to.block);
  } else {
    check(from.tier == Tier::disk && to.tier == Tier::device, "a KV block is copied nowhere");
    stream_.synchronize();  // the block's contents may be on their way elsewhere
    disk_->read(from.block, to.block);
    reading_.push_back(to.block);
  }
}

void KvStorage::begin_copies(std::span<const BlockCopy> copies) {
  finish_copies();
  for (const BlockCopy& copy : copies) begin_copy(copy);
}

void KvStorage::finish_reads() {
  if (disk_) disk_->finish_reads();
  reading_.clear();
}

void KvStorage::finish_copies() {
  join();
  finish_reads();
}

}  // namespace sluice
