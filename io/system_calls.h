// The system calls that readers and writers make, in one place, so that tests can make each of them
// fail. Functions do what the call of the same name does, but return -errno instead of setting
// errno.
#pragma once

#include <liburing.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::io {

// Stateless: the pread reader calls it from several threads at once.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode = 0) const;
  virtual int statx(int fd, unsigned mask, struct statx* out) const;
  virtual int64_t file_system(int fd) const;       // its type, as statfs(2) numbers them
  virtual int set_flags(int fd, int flags) const;  // fcntl(F_SETFL)
  virtual int64_t pread(int fd, std::byte* to, size_t length, uint64_t offset) const;
  virtual int64_t preadv(int fd, std::span<const iovec> to, uint64_t offset) const;
  virtual int fadvise(int fd, uint64_t offset, uint64_t length, int advice) const;
  virtual int64_t pwrite(int fd, const std::byte* from, size_t length, uint64_t offset) const;
  // Empties the file, then takes `bytes` of the disk for it; only a longer file where the file
  // system cannot do that.
  virtual int allocate(int fd, uint64_t bytes) const;
  // Dirty pages of the range have been written when it returns (sync_file_range).
  virtual int write_out(int fd, uint64_t offset, uint64_t length) const;
  virtual int sync(int fd) const;
  virtual int rename(const char* from, const char* to) const;
  virtual uint64_t free_bytes(const char* directory) const;  // of its disk; 0 where nobody knows

  virtual int ring_init(unsigned entries, io_uring* ring, io_uring_params* params) const;
  virtual int register_buffer(io_uring* ring, std::span<std::byte> buffer) const;
  virtual int register_files(io_uring* ring, std::span<const int> fds) const;
  // The result that io_uring reports for a read with these arguments.
  virtual int completion(std::byte* to, size_t length, uint64_t offset, int result) const;

  virtual int64_t mmap(int fd, uint64_t offset, size_t length) const;  // shared, to read; address
  // Copies like memcpy, but a page of `from` that cannot be had ends the copy (or is -EFAULT)
  // instead of raising SIGBUS.
  virtual int64_t copy(std::byte* to, const std::byte* from, size_t length) const;
};

const SystemCalls& system_calls();  // the real ones

}  // namespace sluice::io
