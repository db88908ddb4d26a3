#include "src/load/summed_output.h"

#include <algorithm>

#include "src/base/checksum.h"
#include "src/base/error.h"

namespace sluice {

void SummedOutput::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (file_ != nullptr) file_->write(offset, bytes);
  add_zeros(offset);
  at_ += bytes.size();
  while (!bytes.empty()) {
    if (filled_ == 0 && bytes.size() >= kPageBytes) {
      add_page(bytes.first(kPageBytes));
      bytes = bytes.subspan(kPageBytes);
      continue;
    }
    const size_t count = std::min<size_t>(bytes.size(), kPageBytes - filled_);
    std::ranges::copy(bytes.first(count), page_.begin() + static_cast<std::ptrdiff_t>(filled_));
    bytes = bytes.subspan(count);
    filled_ += count;
    if (filled_ < kPageBytes) continue;
    filled_ = 0;
    add_page(page_);
  }
}

// The file has them already.
void SummedOutput::add_zeros(uint64_t end) {
  check(end >= at_, "bytes of a file are written in order");
  for (uint64_t left = end - at_; left > 0;) {
    const size_t count = std::min<uint64_t>(left, kPageBytes - filled_);
    std::fill_n(page_.begin() + static_cast<std::ptrdiff_t>(filled_), count, std::byte{});
    left -= count;
    filled_ += count;
    if (filled_ < kPageBytes) continue;
    filled_ = 0;
    add_page(page_);
  }
  at_ = end;
}

void SummedOutput::add_page(std::span<const std::byte> page) {
  const uint64_t sum = checksum64(page);
  uint64_t& there = checksums_[pages_++];
  if (file_ == nullptr) {
    differs_ = differs_ || there != sum;
  } else {
    there = sum;
  }
}

bool SummedOutput::finish(uint64_t end) {
  add_zeros(end);
  check(filled_ == 0 && pages_ == checksums_.size(), "a file is whole pages");
  return !differs_;
}

}  // namespace sluice
