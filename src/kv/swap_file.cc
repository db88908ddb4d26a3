#include "src/kv/swap_file.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kReads = 4;   // in flight
constexpr uint64_t kWrites = 2;  // one is put together while another is written

// A reader's slot has room for a read at any offset.
uint64_t reader_slot_bytes(uint64_t slot_bytes) { return slot_bytes + io::kDirectAlignment; }

// Other processes may have their own in the same directory.
io::NewFile create(const std::filesystem::path& directory, uint64_t bytes) {
  constexpr int kMostProcesses = 64;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  for (int i = 0; i < kMostProcesses; ++i) {
    auto file = io::NewFile::create(directory / fmt::format("kv-{}.swap", i), bytes);
    if (file) return *std::move(file);
  }
  fail(ErrorKind::runtime, "{}: {} processes swap to it already; give another --swap-dir",
       directory.string(), kMostProcesses);
}

}  // namespace

uint64_t SwapFile::memory_bytes(uint64_t slot_bytes) {
  return kWrites * slot_bytes + kReads * reader_slot_bytes(slot_bytes);
}

SwapFile::SwapFile(Ledger& ledger, const std::filesystem::path& directory, int64_t slots,
                   uint64_t slot_bytes)
    : slot_bytes_(slot_bytes),
      memory_(ledger, Use::swap, "swap file", memory_bytes(slot_bytes), Buffer::Touch::lazily),
      file_(create(directory, static_cast<uint64_t>(slots) * slot_bytes)) {
  io::Fd fd = io::open_regular(file_.path());
  std::array files{io::describe_file(fd, file_.path(), file_.path().filename())};
  io::ReaderOptions options;
  options.slot_bytes = reader_slot_bytes(slot_bytes);
  options.chunk_bytes = std::clamp<uint64_t>(slot_bytes, 64 * KiB, 2 * MiB);
  reader_ = io::open_reader(files, memory_.bytes().subspan(kWrites * slot_bytes), options);
  thread_ = std::thread([this] { work(); });
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
  changed_.wait(lock, [&] { return writes_.size() < kWrites || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return buffer(next_);
}

void SwapFile::write(int32_t slot) {
  {
    std::lock_guard lock(mutex_);
    writes_.push_back({slot, next_});
  }
  next_ = (next_ + 1) % kWrites;
  changed_.notify_all();
}

void SwapFile::finish_writes() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return writes_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

// What is not written when the file ends is of no use to anybody.
void SwapFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !writes_.empty(); });
    if (stop_) return;
    Write write = writes_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write(static_cast<uint64_t>(write.slot) * slot_bytes_, buffer(write.buffer));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) failure_ = failure;
    writes_.erase(writes_.begin());
    changed_.notify_all();
  }
}

io::ReadRequest SwapFile::read_request(int32_t slot) const {
  return {0, static_cast<uint64_t>(slot) * slot_bytes_, slot_bytes_, 0};
}

}  // namespace sluice
