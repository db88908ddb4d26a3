// How bytes arrive: many reads in flight into a fixed staging area, completed in any order.
//
// A reader owns no memory of size: the staging area belongs to the caller (it comes from the
// ledger) and is divided into equal slots. mmap reads need no slot memory, but keep the same number
// in flight.
//
// Reads start at any offset and have any length up to `max_read()`; where O_DIRECT needs alignment
// the reader widens the read inside its slot. Short reads, EINTR and EAGAIN are retried; every
// other failure is an Error that names file and offset. Files are checked against the
// CheckpointFile (size, mtime, inode) when they are opened, and the size again when a read comes
// back short: a file that shrinks is "changed while it was being read".
//
// One thread calls submit, wait and release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint/index.h"

namespace sluice::io {

inline constexpr uint64_t kDirectAlignment =
    4096;  // of slots; a file's own need is asked with STATX_DIOALIGN

struct ReadRequest {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;  // at most max_read()
  uint64_t tag = 0;     // the caller's
};

struct ReadResult {
  uint64_t tag = 0;
  std::span<const std::byte>
      bytes;  // the file's bytes [offset, offset + length); valid until release
  uint32_t slot = 0;
};

struct ReaderStats {
  uint64_t bytes_requested = 0;  // what callers asked for
  uint64_t bytes_read = 0;       // what was read to give it to them, alignment included
  uint64_t reads = 0;            // system-level reads
  uint64_t retries = 0;          // short reads, EINTR, EAGAIN
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::string_view name() const = 0;  // "uring", "pread", "mmap"
  virtual std::string description()
      const = 0;                          // "io_uring, O_DIRECT, registered buffers, 16 x 2 MiB"
  virtual uint64_t max_read() const = 0;  // bytes of one request
  virtual int free_slots() const = 0;     // requests that can be submitted now
  virtual void submit(const ReadRequest& request) = 0;  // needs a free slot; starts the read
  virtual ReadResult wait() = 0;  // blocks for the next read that is complete; needs one in flight
  virtual void release(const ReadResult& result) = 0;  // the caller is done with result.bytes
  virtual const ReaderStats& stats() const = 0;
};

enum class ReaderKind { automatic, uring, pread, mmap };
std::optional<ReaderKind> parse_reader_kind(
    std::string_view name);  // "auto", "uring", "pread", "mmap"

struct ReaderOptions {
  ReaderKind kind = ReaderKind::automatic;
  uint64_t slot_bytes = 2u << 20;  // multiple of kDirectAlignment
  bool direct = true;              // false: through the page cache, dropped behind the reader
  bool keep_page_cache = false;    // do not drop it (mmap, or direct = false)
};

// `staging` is aligned to kDirectAlignment and a multiple of slot_bytes long; it outlives the
// reader. `files` is the index's list. Chooses by itself (io_uring, else pread) and falls back
// where the kernel, the file system or a limit forbids something: `description()` says what was
// chosen and why. A kind that was asked for by name and cannot work is an Error(usage).
std::unique_ptr<Reader> open_reader(std::span<const CheckpointFile> files,
                                    std::span<std::byte> staging, const ReaderOptions& options);

}  // namespace sluice::io
