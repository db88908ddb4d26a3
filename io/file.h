// Regular files: opened without surprises, and remembered as they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::io {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct JoinedFile;  // io/joined_file.h

// A file of a checkpoint as it was when its header was read; readers refuse it when it has changed
// since.
struct CheckpointFile {
  std::string name;            // as the index names it, relative to the checkpoint's directory
  std::filesystem::path path;  // to open: absolute, without symbolic links
  uint64_t size = 0;           // bytes
  int64_t mtime_ns = 0;
  // Time of the inode's last change. None: the file's bytes are checked in another way.
  std::optional<int64_t> ctime_ns = {};
  uint64_t links = 0;
  uint64_t inode = 0;
  uint64_t device = 0;  // the device that holds it (st_dev)
  // The parts that it is joined of; null: it is a file of its own. Its path is that of its first
  // part.
  std::shared_ptr<const JoinedFile> joined = {};
};

// Opens an existing regular file for reading. Directories, devices and FIFOs are refused, and a
// FIFO without a writer does not block. Throws Error(refused).
Fd open_regular(const std::filesystem::path& path);
// The same for a path without symbolic links (ModelDirectory::resolve): none is followed, should
// one have come since.
Fd open_resolved(const std::filesystem::path& path);

// Describes `fd`, which was opened from `path`, as it is now.
CheckpointFile describe_file(const Fd& fd, const std::filesystem::path& path, std::string name);

// Returns whether the file is still as `then` described it. A change of the inode that comes with
// an added or removed name is not a change of the bytes.
bool is_unchanged(const CheckpointFile& now, const CheckpointFile& then);
// Returns whether the file has another description now. A file that lost its name counts as
// unchanged: only those that have it open can still change it.
bool has_changed(const CheckpointFile& then);
[[noreturn]] void fail_changed(const std::filesystem::path& path);  // Error(runtime)

// Fills `to` from `offset` on. A file that ends earlier "changed while it was being read".
void read_exactly(const Fd& fd, const std::filesystem::path& path, uint64_t offset,
                  std::span<char> to);

// The whole text of a regular file of at most `max_bytes`, which is dropped from the page cache
// again. Throws Error(refused) for anything else.
std::string read_small_file(const std::filesystem::path& path, uint64_t max_bytes);
// The same of an open file, which messages call `path`.
std::string read_small_file(const Fd& fd, const std::filesystem::path& path, uint64_t max_bytes);

// Returns text from an untrusted file for a message or a table: as one_line(), and cut if it is
// longer than a line.
std::string printable(std::string_view text);

}  // namespace sluice::io
