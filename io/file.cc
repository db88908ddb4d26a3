#include "io/file.h"

#include <fcntl.h>
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "io/new_file.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

void refuse_unless_regular(const struct stat& status, const fs::path& path) {
  if (S_ISREG(status.st_mode)) return;
  const char* what = S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a FIFO"
                     : S_ISSOCK(status.st_mode) ? "a socket"
                                                : "a device";
  fail(ErrorKind::refused, "{}: is {}, but must be a regular file", printable(path.string()), what);
}

// A file that cannot be opened is refused, unless that is no fault of the file.
[[noreturn]] void refuse_errno(int errno_value, const fs::path& path) {
  constexpr std::array kNotOfFile{EMFILE, ENFILE, ENOMEM, EIO};
  const bool is_refused = std::ranges::find(kNotOfFile, errno_value) == kNotOfFile.end();
  fail(is_refused ? ErrorKind::refused : ErrorKind::runtime, "{}: cannot be opened: {}",
       printable(path.string()), errno_text(errno_value));
}

struct stat status_of(const Fd& fd, const fs::path& path) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) fail_errno(errno, "{}", printable(path.string()));
  return status;
}

int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

CheckpointFile describe(const struct stat& status, const fs::path& path, std::string name) {
  return {.name = std::move(name),
          .path = path,
          .size = static_cast<uint64_t>(status.st_size),
          .mtime_ns = nanoseconds(status.st_mtim),
          .ctime_ns = nanoseconds(status.st_ctim),
          .links = status.st_nlink,
          .inode = status.st_ino,
          .device = status.st_dev};
}

enum class Links : uint8_t { followed, refused };

// Before Linux 5.6, and in sandboxes that forbid the newer call, only a link at the path's end is
// refused.
int open_without_links(const char* path, int flags) {
#if defined(SYS_openat2) && defined(RESOLVE_NO_SYMLINKS)
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_NO_SYMLINKS;
  const long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
#endif
  return open(path, flags | O_NOFOLLOW);
}

Fd open_checked(const fs::path& path, Links links) {
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  // Looked at before it is opened, because opening alone can set a device in motion; and once more
  // afterwards, because only then it can no longer be exchanged.
  struct stat status;
  if (stat(path.c_str(), &status) != 0) refuse_errno(errno, path);
  refuse_unless_regular(status, path);
  Fd fd(links == Links::followed ? open(path.c_str(), kFlags)
                                 : open_without_links(path.c_str(), kFlags));
  if (!fd.is_open()) refuse_errno(errno, path);
  refuse_unless_regular(status_of(fd, path), path);
  return fd;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Fd open_regular(const fs::path& path) { return open_checked(path, Links::followed); }

Fd open_resolved(const fs::path& path) { return open_checked(path, Links::refused); }

CheckpointFile describe_file(const Fd& fd, const fs::path& path, std::string name) {
  return describe(status_of(fd, path), path, std::move(name));
}

bool is_unchanged(const CheckpointFile& now, const CheckpointFile& then) {
  const bool same_time = then.mtime_ns == kAnyTime || now.mtime_ns == then.mtime_ns;
  if (now.size != then.size || !same_time || now.inode != then.inode) return false;
  return !then.ctime_ns || now.ctime_ns == then.ctime_ns || now.links != then.links;
}

bool has_changed(const CheckpointFile& then) {
  struct stat status;
  if (stat(then.path.c_str(), &status) != 0) return false;
  CheckpointFile now = describe(status, then.path, then.name);
  bool same_file = now.inode == then.inode && now.device == then.device;
  return same_file && !is_unchanged(now, then);
}

void fail_changed(const fs::path& path) {
  fail(ErrorKind::runtime,
       "{}: has changed since its header was read; start again when nothing writes to it",
       printable(path.string()));
}

void read_exactly(const Fd& fd, const fs::path& path, uint64_t offset, std::span<char> to) {
  while (!to.empty()) {
    ssize_t n = pread(fd.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno, "{}: cannot be read at offset {}", printable(path.string()), offset);
    }
    if (n == 0) {
      fail(ErrorKind::runtime, "{}: changed while it was being read: it ends at offset {} now",
           printable(path.string()), offset);
    }
    offset += static_cast<uint64_t>(n);
    to = to.subspan(static_cast<size_t>(n));
  }
}

std::string read_small_file(const fs::path& path, uint64_t max_bytes) {
  return read_small_file(open_regular(path), path, max_bytes);
}

std::string read_small_file(const Fd& fd, const fs::path& path, uint64_t max_bytes) {
  uint64_t size = static_cast<uint64_t>(status_of(fd, path).st_size);
  if (size > max_bytes) {
    fail(ErrorKind::refused, "{}: has {} bytes, more than the {} that are accepted",
         printable(path.string()), size, max_bytes);
  }
  std::string text(size, '\0');
  read_exactly(fd, path, 0, text);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return text;
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 256;
  if (text.size() <= kLongest) return one_line(text);
  // The cut is never in the middle of a UTF-8 sequence, whose later bytes are 10xxxxxx.
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return one_line(text.substr(0, end)) + "...";
}

}  // namespace sluice::io
