#include "tests/support/simt/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "tests/support/simt/buffer.h"
#include "tests/support/simt/emulator.h"

namespace sluice::simt {
namespace {

// The one thread that runs kernels: the emulator's stacks belong to it.
class Worker {
 public:
  Worker() : thread_([this](const std::stop_token& stop) { work(stop); }) {}

  void run(const std::function<void()>& job) {
    std::lock_guard one_at_a_time(callers_);
    std::unique_lock lock(mutex_);
    job_ = &job;
    changed_.notify_all();
    changed_.wait(lock, [&] { return job_ == nullptr; });
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return job_ != nullptr; })) {
      (*job_)();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex callers_, mutex_;
  std::condition_variable_any changed_;
  const std::function<void()>* job_ = nullptr;
  std::jthread thread_;
};

Worker& worker() {
  static Worker w;
  return w;
}

class EmulatedEvent final : public DeviceEvent {
 public:
  explicit EmulatedEvent(Streams& streams) : streams_(streams) {}
  void synchronize() override { streams_.synchronize(mark); }
  Mark mark;

 private:
  Streams& streams_;
};

class Emulated final : public EmulatedDevice, private MemoryOwner {
 public:
  explicit Emulated(const DeviceOptions& o)
      : info_{"emulated", o.compute_capability, o.bytes},
        graphs_offered_(o.graphs),
        graph_bytes_(o.graph_bytes),
        streams_(o.schedule, o.seed, [this](const auto& work) { run(work); }) {}

  const DeviceInfo& info() const override { return info_; }
  Place place() const override { return Place::device; }
  uint64_t free_bytes() const override {
    std::lock_guard lock(mutex_);
    return info_.total_bytes - reserved_;
  }
  void reserve(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    check(pieces_.empty(), "memory is reserved while none of it is in use");
    if (bytes > info_.total_bytes)
      fail(ErrorKind::no_fit, "the emulated device has {}", format_size(info_.total_bytes));
    reserved_ = bytes;
  }
  sluice::Buffer memory(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes,
                        sluice::Buffer::Touch) override {
    uint64_t size = sluice::Buffer::charged_bytes(bytes);
    if (size == 0) return {};
    Lease lease = ledger.lease(Place::device, use, owner, size);
    std::lock_guard lock(mutex_);
    check(used_ + size <= reserved_, "memory within what was reserved");
    GuardedBytes& piece = pieces_.emplace_back(size);
    std::memset(piece.data(), 0, size);
    piece.allow(false);
    used_ += size;
    peak_ = std::max(peak_, used_);
    return sluice::Buffer(std::move(lease), {piece.data(), size}, *this);
  }
  std::unique_ptr<DeviceStream> stream() override;
  std::unique_ptr<DeviceEvent> event() override {
    return std::make_unique<EmulatedEvent>(streams_);
  }
  std::unique_ptr<Pinned> pin(std::span<std::byte> host) override;
  uint64_t peak_bytes() const override { return peak_; }
  int64_t graphs() const override { return graphs_; }
  uint64_t bytes_out() const override { return bytes_out_; }
  void count_copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    if (is_own(from) && !is_own(to)) bytes_out_ += bytes;
  }
  std::unique_ptr<DeviceGraph> capture(CUstream_st* stream, const std::function<void()>& work);

  Streams& streams() { return streams_; }
  // Memory that copies may be late with.
  bool stays(const std::byte* at) const {
    std::lock_guard lock(mutex_);
    return is_own(at) || std::ranges::any_of(pinned_, [&](const auto& s) { return holds(s, at); });
  }
  void unpin(const std::byte* data) {
    std::lock_guard lock(mutex_);
    std::erase_if(pinned_, [&](const auto& s) { return s.data() == data; });
  }

 private:
  static bool holds(std::span<const std::byte> s, const std::byte* at) {
    return at >= s.data() && at < s.data() + s.size();
  }
  bool is_own(const std::byte* at) const {
    return std::ranges::any_of(
        pieces_, [&](const GuardedBytes& p) { return holds({p.data(), p.size()}, at); });
  }
  // The device's work: its memory can be touched meanwhile.
  void run(const std::function<void()>& work) {
    std::lock_guard lock(mutex_);
    for (GuardedBytes& p : pieces_) p.allow(true);
    worker().run(work);
    for (GuardedBytes& p : pieces_) p.allow(false);
  }
  void take_back(std::span<std::byte> bytes) noexcept override {
    std::lock_guard lock(mutex_);
    auto piece = std::ranges::find(pieces_, bytes.data(), &GuardedBytes::data);
    piece->allow(true);
    used_ -= bytes.size();
    pieces_.erase(piece);
  }

  DeviceInfo info_;
  bool graphs_offered_;
  uint64_t graph_bytes_;
  std::atomic<int64_t> graphs_ = 0;
  mutable std::mutex mutex_;  // guards what follows, but for streams_
  uint64_t reserved_ = 0, used_ = 0, peak_ = 0, bytes_out_ = 0;
  std::list<GuardedBytes> pieces_;
  std::vector<std::span<std::byte>> pinned_;
  Streams streams_;
};

class EmulatedGraph final : public DeviceGraph {
 public:
  EmulatedGraph(std::vector<std::function<void()>> work, uint64_t bytes,
                std::atomic<int64_t>& living)
      : work_(std::move(work)), bytes_(bytes), living_(living) {
    ++living_;
  }
  ~EmulatedGraph() override { --living_; }
  EmulatedGraph(const EmulatedGraph&) = delete;
  EmulatedGraph& operator=(const EmulatedGraph&) = delete;
  uint64_t bytes() const override { return bytes_; }
  const std::vector<std::function<void()>>& work() const { return work_; }

 private:
  std::vector<std::function<void()>> work_;
  uint64_t bytes_;
  std::atomic<int64_t>& living_;
};

std::unique_ptr<DeviceGraph> Emulated::capture(CUstream_st* stream,
                                               const std::function<void()>& work) {
  if (!graphs_offered_) return nullptr;
  return std::make_unique<EmulatedGraph>(streams_.capture(stream, work), graph_bytes_, graphs_);
}

class EmulatedStream final : public DeviceStream {
 public:
  explicit EmulatedStream(Emulated& device) : device_(device), stream_(device.streams().make()) {}
  ~EmulatedStream() override { device_.streams().end(stream_); }
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  void copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    if (stream_->recording != nullptr && !(device_.stays(from) && device_.stays(to)))
      throw Fault("a copy with memory that does not stay, while work is recorded");
    device_.count_copy(to, from, bytes);
    if (device_.stays(from)) {
      device_.streams().put(stream_, [=] { std::memmove(to, from, bytes); });
    } else {  // CUDA C++ Programming Guide, "API Synchronization": it is read before the call
              // returns
      std::vector<std::byte> read(from, from + bytes);
      device_.streams().put(stream_,
                            [=, read = std::move(read)] { std::memcpy(to, read.data(), bytes); });
    }
    if (!device_.stays(to)) synchronize();
  }
  void clear(std::byte* at, uint64_t bytes) override {
    device_.streams().put(stream_, [=] { std::memset(at, 0, bytes); });
  }
  void record(DeviceEvent& event) override {
    static_cast<EmulatedEvent&>(event).mark = device_.streams().record(stream_);
  }
  void wait(const DeviceEvent& event) override {
    const Mark& mark = static_cast<const EmulatedEvent&>(event).mark;
    if (mark != nullptr) device_.streams().wait(stream_, mark);
  }
  void synchronize() override { device_.streams().synchronize(stream_); }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    return device_.capture(stream_, work);
  }
  void launch(DeviceGraph& graph) override {
    for (const auto& work : static_cast<EmulatedGraph&>(graph).work())
      device_.streams().put(stream_, work);
  }
  CUstream_st* handle() const override { return stream_; }

 private:
  Emulated& device_;
  CUstream_st* stream_;
};

class EmulatedPinned final : public Pinned {
 public:
  EmulatedPinned(Emulated& device, const std::byte* data) : device_(device), data_(data) {}
  ~EmulatedPinned() override { device_.unpin(data_); }
  EmulatedPinned(const EmulatedPinned&) = delete;
  EmulatedPinned& operator=(const EmulatedPinned&) = delete;

 private:
  Emulated& device_;
  const std::byte* data_;
};

std::unique_ptr<DeviceStream> Emulated::stream() { return std::make_unique<EmulatedStream>(*this); }

std::unique_ptr<Pinned> Emulated::pin(std::span<std::byte> host) {
  if (host.empty()) return nullptr;
  std::lock_guard lock(mutex_);
  pinned_.push_back(host);
  return std::make_unique<EmulatedPinned>(*this, host.data());
}

}  // namespace

std::unique_ptr<EmulatedDevice> make_emulated_device(const DeviceOptions& options) {
  return std::make_unique<Emulated>(options);
}

}  // namespace sluice::simt
