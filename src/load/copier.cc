#include "src/load/copier.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice {

Copier::Copier(const io::CheckpointIndex& index, std::span<std::byte> block,
               const std::stop_token& stop)
    : block_(block), stop_(stop) {
  for (const io::CheckpointFile& file : index.files()) files_.emplace_back(file);
}

void Copier::copy(uint32_t file, uint64_t offset, uint64_t bytes) {
  if (bytes_ > 0 && file == file_ && offset == offset_ + bytes_) {
    bytes_ += bytes;
    return;
  }
  flush();
  file_ = file;
  offset_ = offset;
  bytes_ = bytes;
}

void Copier::flush() {
  while (bytes_ > 0) {
    if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted");
    const std::span<std::byte> part = block_.first(std::min<uint64_t>(bytes_, block_.size()));
    files_[file_].read(offset_, {reinterpret_cast<char*>(part.data()), part.size()});
    write_(part);
    offset_ += part.size();
    bytes_ -= part.size();
  }
}

}  // namespace sluice
