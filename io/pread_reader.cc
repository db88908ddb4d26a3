// The pread reader: a few threads take chunks from a queue. The way for kernels and containers
// without io_uring.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "io/dummy.h"
#include "io/joined_file.h"
#include "io/readers.h"
#include "io/slots.h"
#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

// Reads in flight: the threads sleep in the kernel, so their number has nothing to do with cores.
constexpr size_t kThreads = 8;

class PreadReader final : public Reader {
 public:
  PreadReader(Slots slots, std::vector<OpenFile> files, const ReaderOptions& options,
              const SystemCalls& calls, const std::string& remark);
  ~PreadReader() override;

  std::string_view name() const override { return "pread"; }
  std::string description() const override { return description_; }
  uint64_t max_read() const override { return slots_.max_read(); }
  int free_slots() const override { return slots_.free(); }
  void submit(const ReadRequest& request) override;
  ReadResult wait() override;
  std::optional<ReadResult> poll() override;
  void release(const ReadResult& result) override { slots_.give_back(result.slot); }
  ReaderStats stats() const override;

 private:
  void start_threads();
  void work();
  void read_chunk(Chunk& chunk, ReaderStats& stats);
  int64_t read_joined(const OpenFile& file, const Chunk& chunk);
  void take_arrived(bool block);
  ReadResult take_done();

  Slots slots_;  // the caller's thread only, except that workers use the chunks they took
  const std::vector<OpenFile> files_;
  const SystemCalls& calls_;
  int requests_in_flight_ = 0;  // submitted, not yet returned by wait
  std::deque<uint32_t> done_;   // slots
  std::string description_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable to_read_changed_;
  std::condition_variable arrived_changed_;
  std::deque<Chunk*> to_read_;
  std::vector<uint32_t> arrived_;  // the slot of each chunk that has
  std::exception_ptr failure_;
  ReaderStats stats_;
  bool stop_ = false;

  std::vector<std::thread> threads_;
};

PreadReader::PreadReader(Slots slots, std::vector<OpenFile> files, const ReaderOptions& options,
                         const SystemCalls& calls, const std::string& remark)
    : slots_(std::move(slots)), files_(std::move(files)), calls_(calls) {
  start_threads();
  description_ = fmt::format(
      "pread, {}, {} threads, {} x {}{}", access_description(files_, options), threads_.size(),
      slots_.count(), format_size(options.slot_bytes), remark.empty() ? "" : " (" + remark + ")");
}

void PreadReader::start_threads() {
  size_t wanted = std::min(kThreads, slots_.chunk_count());
  threads_.reserve(wanted);
  try {
    while (threads_.size() < wanted)
      threads_.push_back(start_thread({"reading", static_cast<int>(wanted)}, [this] { work(); }));
  } catch (const Error&) {
    if (threads_.empty()) throw;  // fewer only read more slowly
  }
}

PreadReader::~PreadReader() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    to_read_.clear();
  }
  to_read_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  drop_all(files_, calls_);
}

void PreadReader::submit(const ReadRequest& request) {
  std::span<Chunk> chunks = slots_.take(request, files_);
  ++requests_in_flight_;
  {
    std::lock_guard lock(mutex_);
    for (Chunk& chunk : chunks) to_read_.push_back(&chunk);
    stats_.bytes_requested += bytes_of(request);
  }
  to_read_changed_.notify_all();
}

ReadResult PreadReader::wait() {
  check(requests_in_flight_ > 0, "wait without a read in flight");
  while (done_.empty()) take_arrived(true);
  return take_done();
}

std::optional<ReadResult> PreadReader::poll() {
  if (done_.empty()) take_arrived(false);
  if (done_.empty()) return std::nullopt;
  return take_done();
}

// Takes the chunks that have arrived; with `block`, waits for one at least.
void PreadReader::take_arrived(bool block) {
  std::vector<uint32_t> arrived;
  {
    std::unique_lock lock(mutex_);
    if (block) arrived_changed_.wait(lock, [this] { return !arrived_.empty() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    arrived.swap(arrived_);
  }
  for (uint32_t slot : arrived) {
    if (slots_.arrived(slot)) done_.push_back(slot);
  }
}

ReadResult PreadReader::take_done() {
  const uint32_t slot = done_.front();
  done_.pop_front();
  --requests_in_flight_;
  return slots_.result(slot);
}

ReaderStats PreadReader::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void PreadReader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    to_read_changed_.wait(lock, [this] { return stop_ || !to_read_.empty(); });
    if (stop_) return;
    Chunk& chunk = *to_read_.front();
    to_read_.pop_front();
    lock.unlock();
    ReaderStats stats;
    std::exception_ptr failure;
    try {
      read_chunk(chunk, stats);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    stats_ += stats;
    if (failure) {
      failure_ = failure;
    } else {
      arrived_.push_back(chunk.slot);
    }
    arrived_changed_.notify_one();
  }
}

// Returns the bytes that it has.
int64_t PreadReader::read_joined(const OpenFile& file, const Chunk& chunk) {
  const uint64_t bytes = std::min(chunk.missing(), file.size - chunk.offset());
  scatter(*file.joined, chunk.offset(), {chunk.to(), bytes}, [&](const Scatter& read) {
    const OpenFile& part = file.parts[read.part];
    uint64_t end = read.offset;
    for (const iovec& place : read.to) end += place.iov_len;
    try {
      read_scattered(read, part.fd.get(), part.path, calls_);
    } catch (const Error& e) {
      throw ReadError(chunk.file, e);
    }
    drop_behind(part, round_down(read.offset, kDirectAlignment), end, calls_);
  });
  return static_cast<int64_t>(bytes);
}

void PreadReader::read_chunk(Chunk& chunk, ReaderStats& stats) {
  const OpenFile& file = files_[chunk.file];
  int64_t result;
  do {
    if (file.is_dummy) {
      dummy_bytes(chunk.offset(), {chunk.to(), chunk.missing()});
      result = static_cast<int64_t>(chunk.missing());
      continue;
    }
    if (file.joined != nullptr) {
      result = read_joined(file, chunk);
      continue;
    }
    result = calls_.pread(file.fd.get(), chunk.to(), chunk.missing(), chunk.offset());
  } while (!take_result(chunk, result, file, calls_, stats));
  drop_behind(file, chunk.begin, chunk.needed_end(), calls_);
}

}  // namespace

std::unique_ptr<Reader> open_pread_reader(std::span<const CheckpointFile> files,
                                          std::span<std::byte> staging,
                                          const ReaderOptions& options, const SystemCalls& calls,
                                          const std::string& remark) {
  Slots slots(staging, options);
  std::vector<OpenFile> open = open_files(files, options, staging, calls);
  return std::make_unique<PreadReader>(std::move(slots), std::move(open), options, calls, remark);
}

}  // namespace sluice::io
