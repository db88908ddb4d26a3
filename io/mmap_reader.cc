// The mmap reader: pages of the file are mapped, a piece at a time, and copied into the slot.
//
// Bytes are not handed out of the mapping itself: a page of a file that shrinks meanwhile would
// kill the process with SIGBUS on access, at any moment until the caller is done with it. The
// kernel copies instead (process_vm_readv on ourselves), which reports such a page as an error; no
// signal handler is needed, and pages can leave the cache as soon as they are copied. Mapped pages,
// and those that are read ahead into the page cache, are bounded whatever the slots are: a cgroup
// pays for both beside them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "io/readers.h"
#include "io/slots.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

constexpr uint64_t kPieceBytes = 256 * KiB;  // that is mapped
// Bytes in the page cache that are not copied yet.
constexpr uint64_t kMostAhead = 4 * MiB;
// Linux's default limit of what one call reads ahead.
constexpr uint64_t kReadAheadBytes = 128 * KiB;

class Mapping {
 public:
  Mapping(const OpenFile& file, uint64_t offset, uint64_t length, const SystemCalls& calls);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data_, length_); }

  const std::byte* data() const { return data_ + skip_; }  // from `offset` on

 private:
  std::byte* data_ = nullptr;
  uint64_t skip_ = 0;
  uint64_t length_ = 0;
};

Mapping::Mapping(const OpenFile& file, uint64_t offset, uint64_t length, const SystemCalls& calls) {
  uint64_t begin = round_down(offset, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  skip_ = offset - begin;
  length_ = skip_ + length;
  int64_t address = calls.mmap(file.fd.get(), begin, length_);
  if (address < 0 && address > -4096) {
    fail_errno(static_cast<int>(-address), "{}: cannot be mapped at offset {}", file.path, begin);
  }
  data_ = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): it is one
}

class MmapReader final : public Reader {
 public:
  MmapReader(Slots slots, std::vector<OpenFile> files, const ReaderOptions& options,
             const SystemCalls& calls);
  ~MmapReader() override;

  std::string_view name() const override { return "mmap"; }
  std::string description() const override { return description_; }
  uint64_t max_read() const override { return slots_.max_read(); }
  int free_slots() const override { return slots_.free(); }
  void submit(const ReadRequest& request) override;
  ReadResult wait() override;
  std::optional<ReadResult> poll() override { return std::nullopt; }
  void release(const ReadResult& result) override { slots_.give_back(result.slot); }
  ReaderStats stats() const override { return stats_; }

 private:
  struct InFlight {
    std::span<Chunk> chunks;  // of an extent
    uint64_t copied = 0;      // of the file: up to here
    uint64_t advised = 0;     // and up to here it is, or will be, in the page cache
  };

  void read_ahead();
  int64_t copy_pieces(const Chunk& chunk, InFlight& request);
  int64_t copy_piece(std::byte* to, uint64_t offset, uint64_t length, const OpenFile& file);

  Slots slots_;
  std::vector<OpenFile> files_;
  const SystemCalls& calls_;
  std::deque<InFlight> in_flight_;  // oldest first
  ReaderStats stats_;
  std::string description_;
};

MmapReader::MmapReader(Slots slots, std::vector<OpenFile> files, const ReaderOptions& options,
                       const SystemCalls& calls)
    : slots_(std::move(slots)), files_(std::move(files)), calls_(calls) {
  description_ = fmt::format("mmap, {} x {}{}", slots_.count(), format_size(options.slot_bytes),
                             options.keep_page_cache ? ", page cache kept" : "");
}

MmapReader::~MmapReader() { drop_all(files_, calls_); }

// Returns whether a chunk is read on from where another ends.
bool follows(const Chunk& next, const Chunk& before) {
  return next.file == before.file && next.begin == before.begin + before.length;
}

void MmapReader::submit(const ReadRequest& request) {
  std::span<Chunk> chunks = slots_.take(request, files_);
  for (size_t first = 0, next = 1; first < chunks.size(); first = next++) {
    while (next < chunks.size() && follows(chunks[next], chunks[next - 1])) ++next;
    in_flight_.push_back(
        {chunks.subspan(first, next - first), chunks[first].begin, chunks[first].begin});
  }
  stats_.bytes_requested += bytes_of(request);
  read_ahead();
}

void MmapReader::read_ahead() {
  uint64_t ahead = 0;
  for (InFlight& request : in_flight_) {
    const uint64_t end = request.chunks.back().needed_end();
    request.advised = std::max(request.advised, request.copied);
    ahead += request.advised - request.copied;
    while (request.advised < end) {
      if (ahead >= kMostAhead) return;
      uint64_t length = std::min(kReadAheadBytes, end - request.advised);
      calls_.fadvise(files_[request.chunks.front().file].fd.get(), request.advised, length,
                     POSIX_FADV_WILLNEED);
      request.advised += length;
      ahead += length;
    }
  }
}

ReadResult MmapReader::wait() {
  check(!in_flight_.empty(), "wait without a read in flight");
  const uint32_t slot = in_flight_.front().chunks.front().slot;
  for (bool is_whole = false; !is_whole; in_flight_.pop_front()) {
    InFlight& oldest = in_flight_.front();
    for (Chunk& chunk : oldest.chunks) {
      const OpenFile& file = files_[chunk.file];
      while (!take_result(chunk, copy_pieces(chunk, oldest), file, calls_, stats_)) {
      }
      is_whole = slots_.arrived(slot);
    }
  }
  return slots_.result(slot);
}

// Copies the missing part of the chunk. Returns what one read would: bytes, or -errno.
int64_t MmapReader::copy_pieces(const Chunk& chunk, InFlight& request) {
  const OpenFile& file = files_[chunk.file];
  const uint64_t missing = chunk.needed - chunk.done;
  uint64_t done = 0;
  while (done < missing) {
    uint64_t length = std::min(kPieceBytes, missing - done);
    uint64_t offset = chunk.offset() + done;
    int64_t result;
    try {
      result = copy_piece(chunk.to() + done, offset, length, file);
    } catch (const Error& e) {
      throw ReadError(chunk.file, e);
    }
    if (result <= 0) return done > 0 ? static_cast<int64_t>(done) : result;
    auto copied = static_cast<uint64_t>(result);
    done += copied;
    request.copied = offset + copied;
    drop_behind(file, round_down(offset, kDirectAlignment), request.copied, calls_);
    read_ahead();
    if (copied < length) break;
  }
  return static_cast<int64_t>(done);
}

int64_t MmapReader::copy_piece(std::byte* to, uint64_t offset, uint64_t length,
                               const OpenFile& file) {
  Mapping mapping(file, offset, length, calls_);  // which ends here: mapped pages are not dropped
  int64_t result = calls_.copy(to, mapping.data(), length);
  // A page that is beyond the file's end now, or that the disk did not deliver.
  if (result == -EFAULT) result = size_now(file, calls_) < file.size ? 0 : -EIO;
  return result;
}

}  // namespace

std::unique_ptr<Reader> open_mmap_reader(std::span<const CheckpointFile> files,
                                         std::span<std::byte> staging, const ReaderOptions& options,
                                         const SystemCalls& calls) {
  Slots slots(staging, options);
  std::byte probe{1};
  if (int64_t result = calls.copy(staging.data(), &probe, 1); result != 1) {
    fail(ErrorKind::usage, "the reader 'mmap' cannot be used here ({}); use 'auto' or 'pread'",
         errno_text(static_cast<int>(-result)));
  }
  ReaderOptions mapped = options;
  mapped.direct = false;
  std::vector<OpenFile> open = open_files(files, mapped, staging, calls);
  return std::make_unique<MmapReader>(std::move(slots), std::move(open), mapped, calls);
}

}  // namespace sluice::io
