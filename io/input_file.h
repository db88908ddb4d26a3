// Input files of any kind, read in pieces, from any offset and more than once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "io/file.h"

namespace sluice::io {

// Keeps a file that is written from its beginning to its end from filling the page cache, for which
// a cgroup pays: what has been written leaves it, MiB by MiB.
class CacheDropper {
 public:
  // `end`: up to where `fd` has been written.
  void written(const Fd& fd, uint64_t end);

 private:
  uint64_t dropped_ = 0;
};

class InputFile {
 public:
  // "-" is standard input. A pipe or a terminal, which can be read only once, is first copied into
  // a file without a name in `directory`. Throws Error(refused) for a device, a directory and an
  // unreadable file; Error(runtime) where there is no room for the copy, or when `stop` is
  // requested.
  InputFile(const std::filesystem::path& path, const std::filesystem::path& directory,
            std::stop_token stop);

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }  // as it was when it was opened
  // Fills `to` from `offset` on. The pages leave the cache, as those of CacheDropper. Throws
  // Error(runtime) for a file that has become shorter, and when `stop` is requested.
  void read(uint64_t offset, std::span<char> to) const;

 private:
  std::string name_;
  std::stop_token stop_;
  Fd fd_;
  uint64_t begin_ = 0;  // standard input may be at any place of its file
  uint64_t size_ = 0;
  mutable uint64_t cached_ = 0;  // bytes that were read since the cache was dropped
};

}  // namespace sluice::io
