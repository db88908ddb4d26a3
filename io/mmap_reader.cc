// The mmap reader: file pages are mapped while they are read ahead, and copied into the slot.
//
// Bytes are not handed out of the mapping itself: a page of a file that shrinks meanwhile would
// kill the process with SIGBUS on access, at any moment until the caller is done with it. The
// kernel copies instead (process_vm_readv on ourselves), which reports such a page as an error; no
// signal handler is needed, and pages can leave the cache as soon as they are copied. A request is
// mapped on its own, so that address space and page tables stay small whatever the file's size.
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

// Linux's default limit of what it reads ahead.
constexpr uint64_t kReadAheadBytes = 128 * KiB;

class Mapping {
 public:
  Mapping() = default;
  Mapping(const OpenFile& file, uint64_t offset, uint64_t length, const SystemCalls& calls);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), skip_(other.skip_), length_(other.length_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(skip_, other.skip_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, length_);
  }

  const std::byte* at(uint64_t i) const { return data_ + skip_ + i; }  // from `offset` on

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
  void release(const ReadResult& result) override { slots_.give_back(result.slot); }
  ReaderStats stats() const override { return stats_; }

 private:
  struct InFlight {
    std::span<Chunk> chunks;
    Mapping mapping;
  };

  void copy_chunk(Chunk& chunk, const std::byte* from, const OpenFile& file);

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

MmapReader::~MmapReader() {
  in_flight_.clear();  // mapped pages cannot be dropped
  drop_all(files_, calls_);
}

void MmapReader::submit(const ReadRequest& request) {
  std::span<Chunk> chunks = slots_.take(request, files_);
  uint64_t begin = chunks.front().begin;
  uint64_t end = chunks.back().needed_end();
  const OpenFile& file = files_[request.file];
  try {
    in_flight_.push_back({chunks, Mapping(file, begin, end - begin, calls_)});
  } catch (const Error& e) {
    throw ReadError(request.file, e);
  }
  // In pieces, because for one call the kernel reads no more than its read-ahead limit.
  for (uint64_t offset = begin; offset < end; offset += kReadAheadBytes) {
    calls_.fadvise(file.fd.get(), offset, std::min(kReadAheadBytes, end - offset),
                   POSIX_FADV_WILLNEED);
  }
  stats_.bytes_requested += request.length;
}

ReadResult MmapReader::wait() {
  check(!in_flight_.empty(), "wait without a read in flight");
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  const Chunk& first = oldest.chunks.front();
  const OpenFile& file = files_[first.file];
  for (Chunk& chunk : oldest.chunks) {
    copy_chunk(chunk, oldest.mapping.at(chunk.begin - first.begin), file);
    slots_.arrived(chunk.slot);
  }
  oldest.mapping = Mapping();  // mapped pages could not be dropped
  drop_behind(file, first.begin, oldest.chunks.back().needed_end(), calls_);
  return slots_.result(first.slot);
}

void MmapReader::copy_chunk(Chunk& chunk, const std::byte* from, const OpenFile& file) {
  int64_t result;
  do {
    result = calls_.copy(chunk.to(), from + chunk.done, chunk.needed - chunk.done);
    // A page that is beyond the file's end now, or that the disk did not deliver.
    if (result == -EFAULT) result = size_now(file, calls_) < file.size ? 0 : -EIO;
  } while (!take_result(chunk, result, file, calls_, stats_));
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
