// The io_uring reader: every chunk of every slot is in flight at once, from one thread. What is not
// a disk's work is the kernel's threads': else this one would copy it when it submits the read.
#include <cerrno>
#include <deque>
#include <thread>

#include "io/readers.h"
#include "io/slots.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

class Ring {
 public:
  Ring(unsigned entries, const SystemCalls& calls) {
    // COOP_TASKRUN (Linux 5.19) saves interrupting the thread for each completion, and
    // TASKRUN_FLAG shows that one waits for the thread to look. SINGLE_ISSUER
    // and DEFER_TASKRUN would tie the ring to one thread, so that no other could drain it, and are
    // not measurably faster with reads of this size.
    for (unsigned flags :
         {IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0u}) {
      io_uring_params params{};
      params.flags = flags;
      error_ = calls.ring_init(entries, &ring_, &params);
      if (error_ != -EINVAL) break;
    }
  }
  ~Ring() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int error() const { return error_; }  // 0, or -errno: there is no ring
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  int error_ = 0;
};

class UringReader final : public Reader {
 public:
  UringReader(std::unique_ptr<Ring> ring, Slots slots, std::vector<OpenFile> files,
              std::span<std::byte> staging, const ReaderOptions& options, const SystemCalls& calls);
  ~UringReader() override;

  std::string_view name() const override { return "uring"; }
  std::string description() const override { return description_; }
  uint64_t max_read() const override { return slots_.max_read(); }
  int free_slots() const override { return slots_.free(); }
  void submit(const ReadRequest& request) override;
  ReadResult wait() override;
  std::optional<ReadResult> poll() override;
  void release(const ReadResult& result) override { slots_.give_back(result.slot); }
  ReaderStats stats() const override { return stats_; }

 private:
  void start(const Chunk& chunk);
  void flush();
  void take_completions();
  ReadResult take_done();

  std::unique_ptr<Ring> ring_;
  Slots slots_;
  std::vector<OpenFile> files_;
  const SystemCalls& calls_;
  bool registered_buffer_ = false;
  bool registered_files_ = false;
  unsigned reads_started_ = 0;  // and not completed
  int requests_in_flight_ = 0;  // submitted, not yet returned by wait
  std::deque<uint32_t> done_;   // slots
  ReaderStats stats_;
  std::string description_;
};

UringReader::UringReader(std::unique_ptr<Ring> ring, Slots slots, std::vector<OpenFile> files,
                         std::span<std::byte> staging, const ReaderOptions& options,
                         const SystemCalls& calls)
    : ring_(std::move(ring)), slots_(std::move(slots)), files_(std::move(files)), calls_(calls) {
  // Both only save work in the kernel: pinning pages and looking up files for each read. Pinned
  // memory counts against RLIMIT_MEMLOCK, so that users other than root are often refused.
  registered_buffer_ = calls.register_buffer(ring_->get(), staging) == 0;
  std::vector<int> fds;
  fds.reserve(files_.size());
  for (const OpenFile& file : files_) fds.push_back(file.fd.get());
  registered_files_ = calls.register_files(ring_->get(), fds) == 0;
  description_ = fmt::format("io_uring, {}, {}{} x {}", access_description(files_, options),
                             registered_buffer_ ? "registered buffers, " : "", slots_.count(),
                             format_size(options.slot_bytes));
}

UringReader::~UringReader() {
  // The kernel must not write into staging memory that has found another use.
  while (reads_started_ > io_uring_sq_ready(ring_->get())) {
    io_uring_cqe* cqe = nullptr;
    int error = io_uring_wait_cqe(ring_->get(), &cqe);
    check(error == 0 || error == -EINTR || error == -EAGAIN, "io_uring cannot be drained");
    if (error != 0) continue;
    io_uring_cqe_seen(ring_->get(), cqe);
    --reads_started_;
  }
  // Unpins the memory now; closing the ring would do so some time later.
  if (registered_buffer_) io_uring_unregister_buffers(ring_->get());
  drop_all(files_, calls_);
}

void UringReader::submit(const ReadRequest& request) {
  for (const Chunk& chunk : slots_.take(request, files_)) start(chunk);
  ++requests_in_flight_;
  stats_.bytes_requested += bytes_of(request);
  flush();
}

void UringReader::start(const Chunk& chunk) {
  io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
  if (sqe == nullptr) {  // the kernel gave fewer entries than there are chunks
    flush();
    sqe = io_uring_get_sqe(ring_->get());
  }
  check(sqe != nullptr, "io_uring's submission queue is full after it was submitted");
  int fd = registered_files_ ? static_cast<int>(chunk.file) : files_[chunk.file].fd.get();
  auto length = static_cast<unsigned>(chunk.missing());
  if (registered_buffer_) {
    io_uring_prep_read_fixed(sqe, fd, chunk.to(), length, chunk.offset(), 0);
  } else {
    io_uring_prep_read(sqe, fd, chunk.to(), length, chunk.offset());
  }
  if (registered_files_) sqe->flags |= IOSQE_FIXED_FILE;
  if (files_[chunk.file].copies) sqe->flags |= IOSQE_ASYNC;
  io_uring_sqe_set_data64(sqe, slots_.index_of(chunk));
  ++reads_started_;
}

void UringReader::flush() {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; io_uring_sq_ready(ring_->get()) > 0; ++attempt) {
    int result = io_uring_submit(ring_->get());
    if (result >= 0) continue;
    bool passing = result == -EINTR || result == -EAGAIN || result == -EBUSY;
    if (!passing || attempt == kAttempts) fail_errno(-result, "io_uring does not accept a read");
    std::this_thread::yield();
  }
}

ReadResult UringReader::wait() {
  check(requests_in_flight_ > 0, "wait without a read in flight");
  while (done_.empty()) {
    io_uring_cqe* cqe = nullptr;
    int error = io_uring_wait_cqe(ring_->get(), &cqe);
    if (error == -EINTR || error == -EAGAIN) continue;
    if (error != 0) fail_errno(-error, "io_uring cannot wait for a read");
    take_completions();
  }
  return take_done();
}

std::optional<ReadResult> UringReader::poll() {
  if (done_.empty()) take_completions();
  if (done_.empty()) return std::nullopt;
  return take_done();
}

ReadResult UringReader::take_done() {
  const uint32_t slot = done_.front();
  done_.pop_front();
  --requests_in_flight_;
  return slots_.result(slot);
}

void UringReader::take_completions() {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(ring_->get(), &cqe) == 0) {
    Chunk& chunk = slots_.chunk(io_uring_cqe_get_data64(cqe));
    int result = cqe->res;
    io_uring_cqe_seen(ring_->get(), cqe);
    --reads_started_;

    const OpenFile& file = files_[chunk.file];
    result = calls_.completion(chunk.to(), chunk.missing(), chunk.offset(), result);
    if (!take_result(chunk, result, file, calls_, stats_)) {
      start(chunk);
      continue;
    }
    drop_behind(file, chunk.begin, chunk.needed_end(), calls_);
    if (slots_.arrived(chunk.slot)) done_.push_back(chunk.slot);
  }
  flush();
}

}  // namespace

std::unique_ptr<Reader> open_uring_reader(std::span<const CheckpointFile> files,
                                          std::span<std::byte> staging,
                                          const ReaderOptions& options, const SystemCalls& calls,
                                          std::string& refusal) {
  Slots slots(staging, options);
  auto ring = std::make_unique<Ring>(static_cast<unsigned>(slots.chunk_count()), calls);
  if (ring->error() != 0) {
    refusal = fmt::format("io_uring: {}", errno_text(-ring->error()));
    return nullptr;
  }
  std::vector<OpenFile> open = open_files(files, options, staging, calls);
  return std::make_unique<UringReader>(std::move(ring), std::move(slots), std::move(open), staging,
                                       options, calls);
}

}  // namespace sluice::io
