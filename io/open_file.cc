#include "io/open_file.h"

#include <fcntl.h>
#include <linux/magic.h>

#include <algorithm>
#include <cerrno>

#include "io/dummy.h"
#include "io/joined_file.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

struct statx stat_open(int fd, const std::string& path, const SystemCalls& calls) {
  struct statx status{};
  int error = calls.statx(fd, STATX_BASIC_STATS | STATX_DIOALIGN, &status);
  if (error < 0) fail_errno(-error, "{}: cannot be examined", path);
  return status;
}

void refuse_if_changed(const struct statx& status, const CheckpointFile& then) {
  auto nanoseconds = [](const statx_timestamp& time) {
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  CheckpointFile now;
  now.size = status.stx_size;
  now.mtime_ns = nanoseconds(status.stx_mtime);
  now.ctime_ns = nanoseconds(status.stx_ctime);
  now.links = status.stx_nlink;
  now.inode = status.stx_ino;
  if (!S_ISREG(status.stx_mode) || !is_unchanged(now, then)) fail_changed(then.path);
}

// Returns whether O_DIRECT works. Before Linux 6.1, and on file systems that do not answer, only a
// read tells: some refuse it there and not when the file is opened.
bool direct_works(int fd, const struct statx& status, std::span<std::byte> scratch,
                  const SystemCalls& calls) {
  if (status.stx_mask & STATX_DIOALIGN) {
    auto fits = [](uint32_t align) { return align != 0 && kDirectAlignment % align == 0; };
    return fits(status.stx_dio_mem_align) && fits(status.stx_dio_offset_align);
  }
  return calls.pread(fd, scratch.data(), kDirectAlignment, 0) != -EINVAL;
}

bool is_in_memory(int fd, const SystemCalls& calls) {
  const int64_t type = calls.file_system(fd);
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

OpenFile open_one(const CheckpointFile& then, const ReaderOptions& options,
                  std::span<std::byte> scratch, const SystemCalls& calls) {
  // O_NONBLOCK: a FIFO that has taken the file's place must not block.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  OpenFile file;
  file.path = printable(then.path.string());
  file.size = then.size;
  file.is_dummy = is_dummy(then);
  if (file.is_dummy) return file;
  if (then.joined != nullptr) {
    file.joined = then.joined;
    ReaderOptions through_cache = options;
    through_cache.direct = false;
    for (const CheckpointFile& part : then.joined->parts)
      file.parts.push_back(open_one(part, through_cache, scratch, calls));
    return file;
  }
  file.direct = options.direct;
  int fd = calls.open(then.path.c_str(), kFlags | (file.direct ? O_DIRECT : 0));
  if (fd == -EINVAL && file.direct) {
    file.direct = false;
    fd = calls.open(then.path.c_str(), kFlags);
  }
  if (fd < 0) fail_errno(-fd, "{}: cannot be opened", file.path);
  file.fd = Fd(fd);

  struct statx status = stat_open(fd, file.path, calls);
  refuse_if_changed(status, then);
  if (file.direct) file.direct = direct_works(fd, status, scratch, calls);
  file.copies = !file.direct || is_in_memory(fd, calls);
  // The flags are without O_NONBLOCK, which io_uring takes to mean "fail rather than wait for the
  // disk".
  int error = calls.set_flags(fd, file.direct ? O_DIRECT : 0);
  if (error < 0) fail_errno(-error, "{}: cannot be opened", file.path);

  file.drop_cache = !file.direct && !options.keep_page_cache;
  // Without read-ahead only requested bytes enter the cache, so that all of them can be dropped.
  if (file.drop_cache) calls.fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

}  // namespace

std::vector<OpenFile> open_files(std::span<const CheckpointFile> files,
                                 const ReaderOptions& options, std::span<std::byte> scratch,
                                 const SystemCalls& calls) {
  std::vector<OpenFile> open;
  open.reserve(files.size());
  for (uint32_t i = 0; i < files.size(); ++i) {
    try {
      open.push_back(open_one(files[i], options, scratch, calls));
    } catch (const Error& e) {
      throw ReadError(i, e);
    }
  }
  return open;
}

std::string access_description(std::span<const OpenFile> files, const ReaderOptions& options) {
  if (!options.direct) return "through the page cache";
  auto direct =
      std::count_if(files.begin(), files.end(), [](const OpenFile& f) { return f.direct; });
  if (direct == std::ssize(files)) return "O_DIRECT";
  if (direct == 0) return "through the page cache (the file system has no O_DIRECT)";
  return fmt::format("O_DIRECT for {} of {} files", direct, files.size());
}

uint64_t size_now(const OpenFile& file, const SystemCalls& calls) {
  return stat_open(file.fd.get(), file.path, calls).stx_size;
}

void drop_behind(const OpenFile& file, uint64_t begin, uint64_t end, const SystemCalls& calls) {
  uint64_t length = round_down(end, kDirectAlignment) - begin;
  if (!file.drop_cache || length == 0) return;  // to the kernel, length 0 is the whole file
  calls.fadvise(file.fd.get(), begin, length, POSIX_FADV_DONTNEED);
}

void drop_all(std::span<const OpenFile> files, const SystemCalls& calls) {
  for (const OpenFile& file : files) {
    if (file.drop_cache) calls.fadvise(file.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    drop_all(file.parts, calls);
  }
}

}  // namespace sluice::io
