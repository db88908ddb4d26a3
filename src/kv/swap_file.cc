#include "src/kv/swap_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kSwapReads = 4;  // in flight
constexpr uint64_t kWrites = 2;     // one is put together while another is written

// Other processes may have their own in the same directory.
io::NewFile create(const std::filesystem::path& directory, uint64_t bytes) {
  constexpr int kMostProcesses = 64;
  for (int i = 0; i < kMostProcesses; ++i) {
    auto file = io::NewFile::create(directory / fmt::format("kv-{}.swap", i), bytes);
    if (file) return *std::move(file);
  }
  fail(ErrorKind::runtime, "{}: {} processes swap to it already; give another --swap-dir",
       directory.string(), kMostProcesses);
}

}  // namespace

uint64_t SwapFile::memory_bytes(uint64_t slot_bytes) {
  return kWrites * slot_bytes + kSwapReads * io::slot_for_any_offset(slot_bytes);
}

SwapFile::SwapFile(Ledger& ledger, const std::filesystem::path& directory, int64_t slots,
                   uint64_t slot_bytes, const KvAreas& areas, std::unique_ptr<DeviceStream> stream)
    : slot_bytes_(slot_bytes),
      areas_(areas),
      stream_(std::move(stream)),
      memory_(ledger, Use::swap, "swap file", memory_bytes(slot_bytes), Buffer::Touch::lazily),
      file_(create(directory, static_cast<uint64_t>(slots) * slot_bytes)) {
  io::Fd fd = io::open_regular(file_.path());
  std::array files{io::describe_file(fd, file_.path(), file_.path().filename())};
  io::ReaderOptions options;
  options.slot_bytes = io::slot_for_any_offset(slot_bytes);
  options.chunk_bytes = std::clamp<uint64_t>(slot_bytes, 64 * KiB, 2 * MiB);
  reader_ = io::open_reader(files, memory_.bytes().subspan(kWrites * slot_bytes), options);
  thread_ = start_thread({"swapping"}, [this] { work(); });
}

SwapFile::~SwapFile() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<std::byte> SwapFile::begin_write() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return writes_ < kWrites || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return buffer(next_);
}

void SwapFile::write(int32_t slot) {
  add({.slot = slot, .buffer = next_});
  next_ = (next_ + 1) % kWrites;
}

void SwapFile::read(int32_t slot, int32_t block) {
  add({.read = true, .slot = slot, .block = block});
}

void SwapFile::add(const Job& job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    ++(job.read ? reads_ : writes_);
  }
  changed_.notify_all();
}

void SwapFile::finish_reads() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reads_ == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

// Does a write, or all reads up to the next write. Work that is left when the file ends is dropped.
void SwapFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    auto reads = std::ranges::find_if_not(jobs_, &Job::read) - jobs_.begin();
    std::vector<Job> now(jobs_.begin(), jobs_.begin() + std::max<std::ptrdiff_t>(reads, 1));
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (reads > 0) {
        read_slots(now);
      } else {
        write_slot(now.front());
      }
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {  // reads may still be in flight: nothing more is begun
      failure_ = failure;
      changed_.notify_all();
      return;
    }
    for (const Job& job : now) {
      --(job.read ? reads_ : writes_);
      jobs_.pop_front();
    }
    changed_.notify_all();
  }
}

void SwapFile::write_slot(const Job& job) {
  file_.write(static_cast<uint64_t>(job.slot) * slot_bytes_, buffer(job.buffer));
}

void SwapFile::read_slots(std::span<const Job> jobs) {
  size_t asked = 0;
  for (size_t arrived = 0; arrived < jobs.size(); ++arrived) {
    for (; asked < jobs.size() && reader_->free_slots() > 0; ++asked) {
      uint64_t offset = static_cast<uint64_t>(jobs[asked].slot) * slot_bytes_;
      reader_->submit({0, offset, slot_bytes_, asked});
    }
    io::ReadResult result = reader_->wait();
    areas_.scatter(*stream_, result.bytes.data(), jobs[result.tag].block);
    stream_->synchronize();
    reader_->release(result);
  }
}

}  // namespace sluice
