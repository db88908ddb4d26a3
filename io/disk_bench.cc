#include "io/disk_bench.h"

#include <algorithm>
#include <chrono>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

constexpr int kMaxDepth = 64;

uint64_t total_size(std::span<const CheckpointFile> files) {
  uint64_t total = 0;
  for (const CheckpointFile& file : files) total += file.size;
  if (total == 0) fail(ErrorKind::refused, "the files have no bytes to read");
  return total;
}

// Walks over the files block by block, round and round. Blocks are aligned in their file; the
// last one of a file may be shorter.
class BlockCursor {
 public:
  BlockCursor(std::span<const CheckpointFile> files, uint64_t block, uint64_t start)
      : files_(files), block_(block) {
    start %= total_size(files);
    while (start >= files_[file_].size) start -= files_[file_++].size;
    offset_ = round_down(start, kDirectAlignment);
  }

  ReadRequest next() {
    while (offset_ >= files_[file_].size) {
      file_ = (file_ + 1) % static_cast<uint32_t>(files_.size());
      offset_ = 0;
    }
    ReadRequest request{file_, offset_, std::min(block_, files_[file_].size - offset_), 0};
    offset_ += request.length;
    return request;
  }

 private:
  std::span<const CheckpointFile> files_;
  uint64_t block_;
  uint32_t file_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace

std::vector<ReadShape> disk_settings(uint64_t staging_bytes) {
  std::vector<ReadShape> settings;
  for (uint64_t block = 256 * KiB; block <= 8 * MiB; block *= 2) {
    int most = static_cast<int>(std::min<uint64_t>(kMaxDepth, staging_bytes / block));
    if (most >= 4) settings.push_back({block, most / 4});
    if (most >= 1) settings.push_back({block, most});
  }
  return settings;
}

DiskSpeed measure_setting(std::span<const CheckpointFile> files, std::span<std::byte> staging,
                          const ReadShape& setting, uint64_t start, uint64_t bytes,
                          std::string* how, const std::stop_token& stop) {
  uint64_t needed = setting.request_bytes * static_cast<uint64_t>(setting.depth);
  check(staging.size() >= needed, "staging area too small for this setting");
  ReaderOptions options;
  options.slot_bytes = setting.request_bytes;
  options.chunk_bytes = setting.request_bytes;
  auto reader = open_reader(files, staging.first(needed), options);
  if (how != nullptr) *how = reader->description();

  BlockCursor cursor(files, setting.request_bytes, start);
  DiskSpeed speed{.setting = setting};
  auto begin = std::chrono::steady_clock::now();
  while (true) {
    while (reader->free_slots() > 0 && reader->stats().bytes_requested < bytes &&
           !stop.stop_requested()) {
      reader->submit(cursor.next());
    }
    if (speed.bytes == reader->stats().bytes_requested) break;
    ReadResult result = reader->wait();
    speed.bytes += result.bytes.size();
    reader->release(result);
  }
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  speed.seconds = elapsed.count();
  return speed;
}

DiskBandwidth measure_disk(std::span<const CheckpointFile> files, std::span<std::byte> staging,
                           uint64_t bytes_per_setting, const std::stop_token& stop) {
  DiskBandwidth bandwidth;
  uint64_t bytes = std::min(bytes_per_setting, total_size(files));
  uint64_t start = 0;
  for (const ReadShape& setting : disk_settings(staging.size())) {
    if (stop.stop_requested()) break;
    std::string how;
    DiskSpeed speed = measure_setting(files, staging, setting, start, bytes, &how, stop);
    start += speed.bytes;
    if (bandwidth.settings.empty() ||
        speed.bytes_per_second() > bandwidth.best.bytes_per_second()) {
      bandwidth.best = speed;
      bandwidth.how = how;
    }
    bandwidth.settings.push_back(speed);
  }
  return bandwidth;
}

}  // namespace sluice::io
