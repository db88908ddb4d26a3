// Reads of bytes: many in flight into a fixed staging area, completed in any order.
//
// A reader owns no memory of size: the staging area belongs to the caller (it comes from the
// ledger) and is divided into equal slots, one for each request. A request is read in chunks, so
// that the disk sees more and smaller reads than there are slots. It may have several extents, of
// different files too, which lie one after another in its slot.
//
// Reads start at any offset; where O_DIRECT needs alignment the reader widens them inside their
// slot. Short reads, EINTR and EAGAIN are retried; every other failure is a ReadError that names
// file and offset, after which the reader can only be destroyed. Files are compared with their
// CheckpointFile (size, times, inode) when they are opened, and their size again when a read comes
// back short: a file that shrinks is "changed while it was being read".
//
// One thread at a time calls a reader. Its destructor waits for what is in flight: afterwards
// nothing writes to the staging area any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/file.h"
#include "io/system_calls.h"
#include "src/base/error.h"

namespace sluice::io {

// Alignment of slots, chunks and reads [bytes]. A file that needs more is read through the page
// cache.
inline constexpr uint64_t kDirectAlignment = 4096;

// The slot that has room for a read of `bytes`, a multiple of kDirectAlignment, at any offset.
constexpr uint64_t slot_for_any_offset(uint64_t bytes) { return bytes + kDirectAlignment; }

// A fault of a file that is opened or read.
struct ReadError : Error {
  ReadError(uint32_t index, const Error& e) : Error(e.kind(), e.what()), file(index) {}
  uint32_t file;  // of those that the reader was opened with
};

// Bytes of a file that follow one another.
struct Extent {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};
inline constexpr size_t kMostExtents = 3;  // of a request

struct ReadRequest {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;       // 1 .. max_read(); up to slot_bytes where offset is aligned
  uint64_t tag = 0;          // the caller's
  uint64_t chunk_bytes = 0;  // of each read, at least the reader's; 0: the reader's
  // Further extents, as many as ReaderOptions says; each begins at a multiple of kDirectAlignment
  // of the slot. Used by submit() only.
  std::span<const Extent> more = {};
};

// Bytes that an extent occupies in a slot.
constexpr uint64_t bytes_in_slot(uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length + kDirectAlignment - 1;
  return end - end % kDirectAlignment - (offset - offset % kDirectAlignment);
}

struct ReadResult {
  uint64_t tag = 0;
  // The file's bytes [offset, offset + length), valid until release. Their address equals the file
  // offset modulo kDirectAlignment: an element is aligned in memory if it is aligned in the file,
  // and only then.
  std::span<const std::byte> bytes;
  uint32_t slot = 0;
  std::array<std::span<const std::byte>, kMostExtents - 1> more = {};  // of its further extents
};

struct ReaderStats {
  uint64_t bytes_requested = 0;  // requested by callers
  uint64_t bytes_read = 0;       // read for them, alignment included
  uint64_t bytes_direct = 0;     // of these, past the page cache
  uint64_t reads = 0;            // system-level reads
  uint64_t retries = 0;          // short reads, EINTR, EAGAIN

  ReaderStats& operator+=(const ReaderStats& other);
};

class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::string_view name() const = 0;    // "uring", "pread", "mmap"
  virtual std::string description() const = 0;  // "io_uring, O_DIRECT, registered buffers, ..."
  virtual uint64_t max_read() const = 0;        // bytes of one request, whatever its offset
  virtual int free_slots() const = 0;           // requests that can be submitted now
  virtual void submit(const ReadRequest& request) = 0;  // needs a free slot; starts the read
  virtual ReadResult wait() = 0;  // blocks for the next read that is complete; needs one in flight
  // A read that is complete already. None of a reader that reads while it waits (mmap).
  virtual std::optional<ReadResult> poll() = 0;
  virtual void release(const ReadResult& result) = 0;  // the caller is done with result.bytes
  virtual ReaderStats stats() const = 0;
};

enum class ReaderKind : uint8_t { automatic, uring, pread, mmap };
// "auto", "uring", "pread", "mmap"
std::optional<ReaderKind> parse_reader_kind(std::string_view name);

struct ReaderOptions {
  ReaderKind kind = ReaderKind::automatic;
  uint64_t slot_bytes = 2u << 20;   // multiple of kDirectAlignment
  uint64_t chunk_bytes = 2u << 20;  // one read; multiple of kDirectAlignment, 64 KiB .. 1 GiB
  size_t most_extents = 1;          // of a request, up to kMostExtents
  bool direct = true;               // false: through the page cache, dropped behind the reader
  bool keep_page_cache = false;     // do not drop it (mmap, or direct = false)
};

// `staging` is aligned to kDirectAlignment and a multiple of slot_bytes long; it outlives the
// reader. `files` is the index's list. Chooses by itself (io_uring, else pread) and falls back
// where the kernel, the file system or a limit forbids something: `description()` says what was
// chosen and why. A kind that was asked for by name and cannot work is an Error(usage).
// `calls` is for tests, which put faults there; it outlives the reader.
std::unique_ptr<Reader> open_reader(std::span<const CheckpointFile> files,
                                    std::span<std::byte> staging, const ReaderOptions& options,
                                    const SystemCalls& calls = system_calls());

}  // namespace sluice::io
