// A file that appears under its name only when it is complete, written in pieces by several
// threads, without leaving its pages in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "io/file.h"
#include "io/system_calls.h"

namespace sluice::io {

// CheckpointFile::mtime_ns of a file that may be written to while it is read.
inline constexpr int64_t kAnyTime = INT64_MIN;

class NewFile {
 public:
  // Takes `bytes` of the disk for `path`, under the name `path`.part until it is published. nullopt
  // when another process is writing it: the part is locked, and the lock ends with its process, so
  // that what a killed one left behind is used again. Throws Error(runtime) where it cannot be
  // created or the disk has no room. `calls` outlives it.
  static std::optional<NewFile> create(const std::filesystem::path& path, uint64_t bytes,
                                       const SystemCalls& calls = system_calls());
  // Does the same as create(), for an output that a user names: a link stays, and its target
  // changes. Error(refused) when another process is writing it.
  static NewFile create_output(const std::filesystem::path& path, uint64_t bytes);
  // Opens a file that was published, to write more of it in place. nullopt where there is none, or
  // another process does so.
  static std::optional<NewFile> reopen(const std::filesystem::path& path,
                                       const SystemCalls& calls = system_calls());
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // removes what was not published

  // Returns the file's path until it is published.
  std::filesystem::path path() const;

  // Any thread; the bytes have reached the disk, or its cache, when it returns. Fastest where
  // offset, address and length are multiples of kDirectAlignment. Throws Error(runtime).
  void write(uint64_t offset, std::span<const std::byte> bytes) const;
  // Makes the file durable under its name, in place of an earlier one. Once; after it only a file
  // that is kept open is written to. Returns its description as it was written, whatever others do
  // to that name.
  CheckpointFile publish(bool keep_open = false);
  // Makes what was written since durable.
  void sync() const;

 private:
  NewFile(std::filesystem::path path, uint64_t bytes, Fd fd, const SystemCalls& calls)
      : path_(std::move(path)), bytes_(bytes), fd_(std::move(fd)), calls_(&calls) {}
  void drop_written(uint64_t begin, uint64_t end) const;

  std::filesystem::path path_;
  uint64_t bytes_;
  Fd fd_;
  Fd direct_;  // the same with O_DIRECT, where the file system has it
  const SystemCalls* calls_;
  bool is_published_ = false;
};

}  // namespace sluice::io
