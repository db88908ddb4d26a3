// System calls that fail on cue.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "io/system_calls.h"
#include "tests/support/random.h"

namespace sluice::io {

struct Faults {
  // Faults of reads.
  double short_reads = 0;                    // share of them
  double interrupted = 0;                    // EINTR
  double try_again = 0;                      // EAGAIN
  std::optional<uint64_t> io_error_at = {};  // EIO for reads of this offset, EFAULT for all copies
  // Faults of opening.
  bool refuse_direct_open = false;                // EINVAL
  bool refuse_direct_read = false;                // EINVAL, and no word of it before
  std::optional<uint32_t> direct_alignment = {};  // what the kernel claims to need; 0: no O_DIRECT
  // Faults of io_uring and mmap.
  int ring_error = 0;          // errno of io_uring_queue_init_params
  unsigned unknown_flags = 0;  // setup flags that this kernel does not know
  int register_error = 0;      // errno of registering buffers and files
  int mmap_error = 0;
  bool refuse_copy = false;  // EPERM
};

class FaultyCalls final : public SystemCalls {
 public:
  FaultyCalls(const Faults& faults, test::Random& random) : faults_(faults), random_(random) {}

  int reads() const { return reads_; }

  int open(const char* path, int flags, unsigned mode) const override {
    if (faults_.refuse_direct_open && (flags & O_DIRECT)) return -EINVAL;
    return SystemCalls::open(path, flags, mode);
  }

  int statx(int fd, unsigned mask, struct statx* out) const override {
    int result = SystemCalls::statx(fd, mask, out);
    if (faults_.refuse_direct_read) out->stx_mask &= ~STATX_DIOALIGN;
    if (faults_.direct_alignment) {
      out->stx_mask |= STATX_DIOALIGN;
      out->stx_dio_mem_align = *faults_.direct_alignment;
      out->stx_dio_offset_align = *faults_.direct_alignment;
    }
    return result;
  }

  int64_t pread(int fd, std::byte* to, size_t length, uint64_t offset) const override {
    if (faults_.refuse_direct_read && (fcntl(fd, F_GETFL) & O_DIRECT)) return -EINVAL;
    return disturb(to, length, offset, SystemCalls::pread(fd, to, length, offset));
  }

  int completion(std::byte* to, size_t length, uint64_t offset, int result) const override {
    return static_cast<int>(disturb(to, length, offset, result));
  }

  int64_t copy(std::byte* to, const std::byte* from, size_t length) const override {
    if (faults_.refuse_copy) return -EPERM;
    if (length == 1) return SystemCalls::copy(to, from, length);  // whether it works at all
    if (faults_.io_error_at) {
      ++reads_;
      return -EFAULT;  // as the kernel reports a page that the disk did not deliver
    }
    return disturb(to, length, UINT64_MAX, SystemCalls::copy(to, from, length));
  }

  int64_t mmap(int fd, uint64_t offset, size_t length) const override {
    if (faults_.mmap_error != 0) return -faults_.mmap_error;
    return SystemCalls::mmap(fd, offset, length);
  }

  int ring_init(unsigned entries, io_uring* ring, io_uring_params* params) const override {
    if (faults_.ring_error != 0) return -faults_.ring_error;
    if (params->flags & faults_.unknown_flags) return -EINVAL;
    return SystemCalls::ring_init(entries, ring, params);
  }
  int register_buffer(io_uring* ring, std::span<std::byte> buffer) const override {
    if (faults_.register_error != 0) return -faults_.register_error;
    return SystemCalls::register_buffer(ring, buffer);
  }
  int register_files(io_uring* ring, std::span<const int> fds) const override {
    if (faults_.register_error != 0) return -faults_.register_error;
    return SystemCalls::register_files(ring, fds);
  }

 private:
  int64_t disturb(std::byte* to, size_t length, uint64_t offset, int64_t result) const {
    ++reads_;
    result = disturbed_result(length, offset, result);
    // Bytes that are reported as not read must not be there either.
    size_t arrived = result < 0 ? 0 : static_cast<size_t>(result);
    if (arrived < length) std::memset(to + arrived, 0xEE, length - arrived);
    return result;
  }

  int64_t disturbed_result(size_t length, uint64_t offset, int64_t result) const {
    if (faults_.io_error_at && offset <= *faults_.io_error_at &&
        *faults_.io_error_at - offset < length) {
      return -EIO;
    }
    std::lock_guard lock(mutex_);
    double dice = random_.uniform();
    double again = faults_.interrupted + faults_.try_again;
    if (dice < faults_.interrupted) return -EINTR;
    if (dice < again) return -EAGAIN;
    if (dice < again + faults_.short_reads && result > 0) return random_.between(0, result);
    return result;
  }

  Faults faults_;
  mutable std::mutex mutex_;
  test::Random& random_;
  mutable std::atomic<int> reads_{0};
};

}  // namespace sluice::io
