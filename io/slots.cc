#include "io/slots.h"

#include <algorithm>
#include <cerrno>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

// More would not make a disk faster; it bounds the reader's own tables. (A slot of its own may
// need more.)
constexpr uint64_t kMaxChunks = 4096;
constexpr uint64_t kMinChunkBytes = 64 * KiB;
constexpr uint64_t kMaxChunkBytes = 1 * GiB;  // the kernel reads less than 2 GiB at once
// A read that is interrupted, refused for the moment or empty this often in a row stays so.
constexpr int kMaxWithoutProgress = 1000;

uint64_t slot_count(std::span<std::byte> staging, const ReaderOptions& o) {
  check(o.most_extents >= 1 && o.most_extents <= kMostExtents, "extents of a request");
  check(o.slot_bytes > kDirectAlignment && o.slot_bytes % kDirectAlignment == 0, "slot size");
  check(o.chunk_bytes >= kMinChunkBytes && o.chunk_bytes <= kMaxChunkBytes, "chunk size");
  check(o.chunk_bytes % kDirectAlignment == 0, "chunk size");
  check(reinterpret_cast<uintptr_t>(staging.data()) % kDirectAlignment == 0, "staging alignment");
  check(!staging.empty() && staging.size() % o.slot_bytes == 0, "staging must be whole slots");
  uint64_t chunks_per_slot = (o.slot_bytes + o.chunk_bytes - 1) / o.chunk_bytes;
  uint64_t most = std::max<uint64_t>(1, kMaxChunks / chunks_per_slot);
  return std::min(staging.size() / o.slot_bytes, most);
}

bool take(Chunk& chunk, int64_t result, const OpenFile& file, const SystemCalls& calls,
          ReaderStats& stats) {
  ++stats.reads;
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    fail_errno(static_cast<int>(-result), "{}: cannot be read at offset {}", file.path,
               chunk.offset());
  }
  uint64_t bytes = result < 0 ? 0 : static_cast<uint64_t>(result);
  stats.bytes_read += bytes;
  if (file.direct) stats.bytes_direct += bytes;
  if (chunk.done + bytes >= chunk.needed) return true;

  ++stats.retries;
  if (result >= 0) {
    uint64_t size = size_now(file, calls);
    if (size < file.size) {
      fail(ErrorKind::runtime,
           "{}: changed while it was being read: it had {} bytes and has {} now", file.path,
           file.size, size);
    }
  }
  uint64_t progress = file.direct ? round_down(bytes, kDirectAlignment) : bytes;
  chunk.without_progress = progress == 0 ? chunk.without_progress + 1 : 0;
  if (chunk.without_progress > kMaxWithoutProgress) {
    fail(ErrorKind::runtime, "{}: cannot be read at offset {}: {} attempts brought nothing",
         file.path, chunk.offset(), kMaxWithoutProgress);
  }
  chunk.done += progress;
  return false;
}

}  // namespace

bool take_result(Chunk& chunk, int64_t result, const OpenFile& file, const SystemCalls& calls,
                 ReaderStats& stats) {
  try {
    return take(chunk, result, file, calls, stats);
  } catch (const Error& e) {
    throw ReadError(chunk.file, e);
  }
}

uint64_t bytes_of(const ReadRequest& request) {
  uint64_t sum = request.length;
  for (const Extent& extent : request.more) sum += extent.length;
  return sum;
}

Slots::Slots(std::span<std::byte> staging, const ReaderOptions& options)
    : staging_(staging),
      slot_bytes_(options.slot_bytes),
      chunk_bytes_(options.chunk_bytes),
      chunks_per_slot_((slot_bytes_ + chunk_bytes_ - 1) / chunk_bytes_ + options.most_extents - 1),
      most_extents_(options.most_extents),
      slots_(slot_count(staging, options)),
      chunks_(slots_.size() * chunks_per_slot_) {
  for (size_t slot = slots_.size(); slot > 0; --slot) {
    free_.push_back(static_cast<uint32_t>(slot - 1));
  }
}

std::span<Chunk> Slots::take(const ReadRequest& request, std::span<const OpenFile> files) {
  check(!free_.empty(), "submit without a free slot");
  check(request.more.size() < most_extents_, "as many extents as the reader was opened for");
  const uint32_t slot = free_.back();
  free_.pop_back();
  Slot& taken = slots_[slot] = {.tag = request.tag, .taken = true};
  const uint64_t chunk = std::max(request.chunk_bytes, chunk_bytes_);
  const std::span<Chunk> all = std::span(chunks_).subspan(slot * chunks_per_slot_);
  uint64_t at = 0;  // bytes of the slot that are taken
  for (size_t e = 0; e <= request.more.size(); ++e) {
    const Extent extent =
        e == 0 ? Extent{request.file, request.offset, request.length} : request.more[e - 1];
    check(extent.file < files.size(), "request for a file that is not open");
    const uint64_t size = files[extent.file].size;
    check(extent.length > 0 && extent.offset <= size && extent.length <= size - extent.offset,
          "request outside its file");
    const uint64_t begin = round_down(extent.offset, kDirectAlignment);
    const uint64_t bytes = bytes_in_slot(extent.offset, extent.length);
    check(bytes <= slot_bytes_ - at, "request larger than a slot");
    taken.extents[e] = {memory(slot) + at + (extent.offset - begin), extent.length};
    for (uint64_t done = 0; done < bytes; done += chunk) {
      const uint64_t length = std::min(chunk, bytes - done);
      all[taken.chunks_left++] = {
          .slot = slot,
          .file = extent.file,
          .memory = memory(slot) + at + done,
          .begin = begin + done,
          .length = length,
          .needed = std::min(length, extent.offset + extent.length - begin - done)};
    }
    at += bytes;
  }
  return all.first(taken.chunks_left);
}

ReadResult Slots::result(uint32_t slot) const {
  const Slot& there = slots_[slot];
  ReadResult result{.tag = there.tag, .bytes = there.extents[0], .slot = slot};
  for (size_t e = 1; e < kMostExtents; ++e) result.more[e - 1] = there.extents[e];
  return result;
}

void Slots::give_back(uint32_t slot) {
  check(slot < slots_.size() && slots_[slot].taken && slots_[slot].chunks_left == 0,
        "release of a slot that holds no result");
  slots_[slot].taken = false;
  free_.push_back(slot);
}

}  // namespace sluice::io
