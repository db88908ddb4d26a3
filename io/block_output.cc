#include "io/block_output.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"

namespace sluice::io {

BlockOutput::BlockOutput(const std::filesystem::path& path, uint64_t bytes,
                         std::span<std::byte> block, const std::stop_token& stop)
    : bytes_(bytes), block_(block) {
  if (path == "-") {
    stream_.emplace(path, stop);
  } else if (auto stream = stream_path(path)) {
    stream_.emplace(*stream, stop, path);
  } else {
    file_.emplace(NewFile::create_output(path, bytes));
  }
}

void BlockOutput::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == block_.size()) flush();
    const size_t part = std::min(bytes.size(), block_.size() - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), part);
    filled_ += part;
    bytes = bytes.subspan(part);
  }
}

void BlockOutput::align(uint64_t alignment) {
  while (written() % alignment != 0) write(std::string_view("\0", 1));
}

void BlockOutput::flush() {
  const std::span<const std::byte> full = block_.first(filled_);
  if (file_) file_->write(offset_, full);
  if (stream_) stream_->write({reinterpret_cast<const char*>(full.data()), full.size()});
  offset_ += filled_;
  filled_ = 0;
}

void BlockOutput::finish() {
  flush();
  check(offset_ == bytes_, "the tensors' bytes do not match their shapes");
  if (file_) file_->publish();
}

}  // namespace sluice::io
