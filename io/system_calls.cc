#include "io/system_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace sluice::io {
namespace {

template <class T>
T or_errno(T result) {
  return result < 0 ? -errno : result;
}

}  // namespace

int SystemCalls::open(const char* path, int flags, unsigned mode) const {
  return or_errno(::open(path, flags, mode));
}

int SystemCalls::statx(int fd, unsigned mask, struct statx* out) const {
  return or_errno(::statx(fd, "", AT_EMPTY_PATH, mask, out));
}

int64_t SystemCalls::file_system(int fd) const {
  struct statfs status{};
  return ::fstatfs(fd, &status) < 0 ? -errno : static_cast<int64_t>(status.f_type);
}

int SystemCalls::set_flags(int fd, int flags) const {
  return or_errno(::fcntl(fd, F_SETFL, flags));
}

int64_t SystemCalls::pread(int fd, std::byte* to, size_t length, uint64_t offset) const {
  return or_errno(::pread(fd, to, length, static_cast<off_t>(offset)));
}

int64_t SystemCalls::preadv(int fd, std::span<const iovec> to, uint64_t offset) const {
  return or_errno(::preadv(fd, to.data(), static_cast<int>(to.size()), static_cast<off_t>(offset)));
}

int SystemCalls::fadvise(int fd, uint64_t offset, uint64_t length, int advice) const {
  return -::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(length), advice);
}

int64_t SystemCalls::pwrite(int fd, const std::byte* from, size_t length, uint64_t offset) const {
  return or_errno(::pwrite(fd, from, length, static_cast<off_t>(offset)));
}

int SystemCalls::allocate(int fd, uint64_t bytes) const {
  if (::ftruncate(fd, 0) != 0) return -errno;
  if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  if (errno != EOPNOTSUPP) return -errno;
  return or_errno(::ftruncate(fd, static_cast<off_t>(bytes)));
}

int SystemCalls::write_out(int fd, uint64_t offset, uint64_t length) const {
  constexpr unsigned kWriteAndWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  return or_errno(
      ::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(length), kWriteAndWait));
}

int SystemCalls::sync(int fd) const { return or_errno(::fsync(fd)); }

int SystemCalls::rename(const char* from, const char* to) const {
  return or_errno(::rename(from, to));
}

uint64_t SystemCalls::free_bytes(const char* directory) const {
  struct statvfs disk{};
  return ::statvfs(directory, &disk) == 0 ? disk.f_bavail * disk.f_frsize : 0;
}

int SystemCalls::ring_init(unsigned entries, io_uring* ring, io_uring_params* params) const {
  return ::io_uring_queue_init_params(entries, ring, params);
}

int SystemCalls::register_buffer(io_uring* ring, std::span<std::byte> buffer) const {
  iovec vector{buffer.data(), buffer.size()};
  return ::io_uring_register_buffers(ring, &vector, 1);
}

int SystemCalls::register_files(io_uring* ring, std::span<const int> fds) const {
  return ::io_uring_register_files(ring, fds.data(), static_cast<unsigned>(fds.size()));
}

int SystemCalls::completion(std::byte*, size_t, uint64_t, int result) const { return result; }

int64_t SystemCalls::mmap(int fd, uint64_t offset, size_t length) const {
  void* at = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return -errno;
  ::madvise(at, length, MADV_RANDOM);  // a page that is not there brings no others with it
  return reinterpret_cast<int64_t>(at);
}

int64_t SystemCalls::copy(std::byte* to, const std::byte* from, size_t length) const {
  iovec local{to, length};
  iovec remote{const_cast<std::byte*>(from), length};
  return or_errno(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0));
}

const SystemCalls& system_calls() {
  static const SystemCalls real;
  return real;
}

}  // namespace sluice::io
