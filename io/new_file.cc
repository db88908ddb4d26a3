#include "io/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "io/reader.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

fs::path part_of(const fs::path& path) {
  fs::path part = path;
  part += ".part";
  return part;
}

// Another process may have published or removed the part between open and lock.
bool is_still(const Fd& fd, const fs::path& part) {
  struct stat opened{};
  struct stat named{};
  return fstat(fd.get(), &opened) == 0 && stat(part.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

std::optional<NewFile> NewFile::create(const fs::path& path, uint64_t bytes,
                                       const SystemCalls& calls) {
  fs::path part = part_of(path);
  int fd = calls.open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) fail_errno(-fd, "{}: cannot be written", printable(path.string()));
  Fd locked(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_still(locked, part)) return std::nullopt;
  NewFile file(path, bytes, std::move(locked), calls);
  // Takes all of the room before the first byte is written: if the disk fills up meanwhile, another
  // process fails.
  int error = bytes > 0 ? calls.allocate(fd, bytes) : 0;
  if (error < 0) {
    fail_errno(-error, "{}: cannot take {} of the disk", printable(part.string()),
               format_size(bytes));
  }
  int direct = calls.open(part.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
  if (direct >= 0) file.direct_ = Fd(direct);
  return file;
}

std::optional<NewFile> NewFile::reopen(const fs::path& path, const SystemCalls& calls) {
  const int fd = calls.open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return std::nullopt;
  Fd locked(fd);
  struct stat s{};
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_still(locked, path) || fstat(fd, &s) != 0)
    return std::nullopt;
  NewFile file(path, static_cast<uint64_t>(s.st_size), std::move(locked), calls);
  file.is_published_ = true;
  const int direct = calls.open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
  if (direct >= 0) file.direct_ = Fd(direct);
  return file;
}

NewFile NewFile::create_output(const fs::path& path, uint64_t bytes) {
  std::error_code error;
  fs::path target = fs::weakly_canonical(path, error);
  std::optional<NewFile> file = create(error ? path : target, bytes);
  if (!file) {
    fail(ErrorKind::refused, "{}: another process is writing it; wait, or give another name",
         printable(path.string()));
  }
  return *std::move(file);
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      bytes_(other.bytes_),
      fd_(std::move(other.fd_)),
      direct_(std::move(other.direct_)),
      calls_(other.calls_),
      is_published_(other.is_published_) {}

NewFile::~NewFile() {
  if (!fd_.is_open() || is_published_) return;
  std::error_code error;
  fs::remove(part_of(path_), error);
}

fs::path NewFile::path() const { return is_published_ ? path_ : part_of(path_); }

void NewFile::write(uint64_t offset, std::span<const std::byte> bytes) const {
  auto aligned = [](uint64_t value) { return value % kDirectAlignment == 0; };
  if (direct_.is_open() && aligned(offset) && aligned(bytes.size()) &&
      aligned(reinterpret_cast<uintptr_t>(bytes.data()))) {
    int64_t n = calls_->pwrite(direct_.get(), bytes.data(), bytes.size(), offset);
    uint64_t done = n < 0 ? 0 : round_down(static_cast<uint64_t>(n), kDirectAlignment);
    bytes = bytes.subspan(done);
    offset += done;
  }
  uint64_t begin = offset;
  while (!bytes.empty()) {
    int64_t n = calls_->pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
    if (n == -EINTR) continue;
    if (n <= 0) {
      fail_errno(n < 0 ? static_cast<int>(-n) : ENOSPC, "{}: cannot be written",
                 printable(part_of(path_).string()));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  if (offset > begin) drop_written(begin, offset);
}

// Pages that were written leave the cache again, where a cgroup would pay for them.
void NewFile::drop_written(uint64_t begin, uint64_t end) const {
  calls_->write_out(fd_.get(), begin, end - begin);
  begin = round_up(begin, kDirectAlignment);
  end = round_down(end, kDirectAlignment);
  if (end > begin) calls_->fadvise(fd_.get(), begin, end - begin, POSIX_FADV_DONTNEED);
}

void NewFile::sync() const {
  const int error = calls_->sync(fd_.get());
  if (error < 0) fail_errno(-error, "{}: cannot be written", printable(path().string()));
}

CheckpointFile NewFile::publish(bool keep_open) {
  sync();
  calls_->fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  CheckpointFile written = describe_file(fd_, path_, path_.filename().string());
  written.ctime_ns.reset();  // a new name changes it
  if (written.size < bytes_) {
    fail(ErrorKind::runtime, "{}: was cut short while it was written",
         printable(part_of(path_).string()));
  }
  const int error = calls_->rename(part_of(path_).c_str(), path_.c_str());
  if (error < 0) fail_errno(-error, "{}: cannot be created", printable(path_.string()));
  is_published_ = true;
  if (keep_open) {
    written.mtime_ns = kAnyTime;
  } else {
    fd_ = Fd();
  }
  return written;
}

}  // namespace sluice::io
