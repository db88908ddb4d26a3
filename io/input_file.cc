#include "io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/input_stream.h"
#include "io/system_calls.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCached = MiB;

Fd file_without_a_name(const fs::path& directory) {
  std::string path = (directory / ".sluice-input-XXXXXX").string();
  Fd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd.is_open()) {
    fail_errno(errno, "{}: a copy of the input, which cannot be read twice, cannot be made there",
               printable(directory.string()));
  }
  unlink(path.c_str());
  return fd;
}

void write_all(const Fd& fd, std::span<const char> bytes, uint64_t offset,
               const fs::path& directory) {
  while (!bytes.empty()) {
    ssize_t n = pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fail_errno(n < 0 ? errno : ENOSPC,
                 "{}: a copy of the input, which cannot be read twice, cannot be written there",
                 printable(directory.string()));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

// An input file that cannot be opened is refused, as one that holds something else.
InputStream open_stream(const fs::path& path, const std::string& name,
                        const std::stop_token& stop) {
  try {
    return {path, name, stop};
  } catch (const Error& e) {
    fail(ErrorKind::refused, "{}", e.what());
  }
}

}  // namespace

void CacheDropper::written(const Fd& fd, uint64_t end) {
  if (end < dropped_ + kCached) return;
  uint64_t begin = std::exchange(dropped_, round_down(end, 4 * KiB));
  system_calls().write_out(fd.get(), begin, dropped_ - begin);
  system_calls().fadvise(fd.get(), begin, dropped_ - begin, POSIX_FADV_DONTNEED);
}

InputFile::InputFile(const fs::path& path, const fs::path& directory, std::stop_token stop)
    : name_(path == "-" ? "standard input" : path.string()), stop_(std::move(stop)) {
  InputStream in = open_stream(path, name_, stop_);
  if (in.is_regular()) {
    struct stat status;
    if (fstat(in.fd().get(), &status) != 0) fail_errno(errno, "{}: cannot be read", name_);
    off_t begin = lseek(in.fd().get(), 0, SEEK_CUR);
    begin_ = static_cast<uint64_t>(std::max<off_t>(begin, 0));
    size_ = static_cast<uint64_t>(status.st_size) - std::min<uint64_t>(begin_, status.st_size);
    fd_ = in.take_fd();
    return;
  }
  fd_ = file_without_a_name(directory);
  CacheDropper cache;
  for (std::string_view part = in.read(); !part.empty(); part = in.read()) {
    write_all(fd_, part, size_, directory);
    size_ += part.size();
    cache.written(fd_, size_);
  }
}

void InputFile::read(uint64_t offset, std::span<char> to) const {
  if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted while reading {}", name_);
  read_exactly(fd_, name_, begin_ + offset, to);
  cached_ += to.size();
  if (cached_ < kCached) return;
  cached_ = 0;
  system_calls().fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace sluice::io
