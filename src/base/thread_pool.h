// Fork-join over index ranges. Each thread begins with a range of its own, so that what it reads
// lies in order, and goes on with what others have left. Work is taken in small chunks, so that a
// thread that lost its core delays one chunk only. A thread that does not get a core in time is not
// waited for: the others do its part. Waiting spins for a bounded time and then sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

class ThreadPool {
 public:
  // Binding of threads: `yes` keeps each started thread on a CPU of its own, of those that the
  // process may use and after the first one. The calling thread stays free: threads that it starts
  // would be bound with it.
  enum class Pin : uint8_t { no, yes };

  // The calling thread is one of the `threads`, so threads - 1 are started.
  explicit ThreadPool(int threads, Pin pin = Pin::no);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, worker) on disjoint chunks of at most `grain` indices that cover [0,
  // count); worker is in [0, size()). Chunks become smaller, to a quarter of that, towards the end
  // of a range, so that threads end together; they begin at multiples of a quarter of `grain`, if
  // that is whole. Returns when all are done; rethrows the first exception. Not reentrant, one
  // caller at a time.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    if (count <= 0) return;
    if (count <= grain || workers_.empty()) {
      for (int64_t begin = 0; begin < count; begin += grain) {
        body(begin, begin + grain < count ? begin + grain : count, 0);
      }
      return;
    }
    auto call = [](void* b, int64_t begin, int64_t end, int worker) {
      (*static_cast<std::remove_reference_t<Body>*>(b))(begin, end, worker);
    };
    run({call, const_cast<void*>(static_cast<const void*>(&body)), count, grain});
  }

 private:
  struct Job {
    void (*call)(void*, int64_t, int64_t, int) = nullptr;
    void* body = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };

  // A thread's part of a job. Whoever takes a chunk of it takes the first that is left.
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};  // first index that nobody has taken
    int64_t end = 0;
  };

  void run(const Job& job);
  void divide(const Job& job);
  static int64_t take_chunk(const Job& job, Range& range, int64_t& begin);
  void work(int worker);
  void end_work();
  void take_chunks(const Job& job, int worker);
  bool join();
  void leave();

  // A bit of inside_: the job takes no more workers.
  static constexpr uint32_t kClosed = 1u << 31;

  Job job_;
  std::vector<Range> ranges_;                          // [size()]
  alignas(64) std::atomic<uint32_t> epoch_{0};         // counts jobs; workers wait for it to change
  alignas(64) std::atomic<uint32_t> inside_{kClosed};  // workers in the current job, and kClosed
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

// Threads that this process may really use: the affinity mask and the cgroup's CPU quota, at
// least 1.
int usable_threads();

}  // namespace sluice
