#include "src/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "src/base/cpu_quota.h"
#include "src/base/thread.h"

namespace sluice {
namespace {

// Long enough to bridge the gap between two kernels of one layer, short enough not to burn a
// neighbour's core.
constexpr auto kSpin = std::chrono::microseconds(50);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::vector<int> usable_cpus() {
  constexpr size_t kMostSets = 64;  // of CPU_SETSIZE processors: a kernel's mask may have several
  std::vector<cpu_set_t> sets(1);
  while (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) {
    if (errno != EINVAL || sets.size() == kMostSets) return {};
    sets.resize(2 * sets.size());
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < static_cast<int>(sets.size()) * CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu % CPU_SETSIZE, &sets[static_cast<size_t>(cpu / CPU_SETSIZE)]))
      cpus.push_back(cpu);
  }
  return cpus;
}

// Binds the thread, as advice only: a CPU that has gone meanwhile leaves the thread where it is.
void keep_to(std::thread& thread, int cpu) {
  std::vector<cpu_set_t> sets(static_cast<size_t>(cpu / CPU_SETSIZE) + 1);
  CPU_SET(cpu % CPU_SETSIZE, &sets.back());
  pthread_setaffinity_np(thread.native_handle(), sets.size() * sizeof(cpu_set_t), sets.data());
}

// Waits until value != old: spins for kSpin, then sleeps in the kernel.
template <class T>
T wait_change(std::atomic<T>& value, T old) {
  auto give_up = std::chrono::steady_clock::now() + kSpin;
  for (int i = 0;; ++i) {
    T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
    if (i % 64 == 63 && std::chrono::steady_clock::now() > give_up) break;
  }
  T now = old;
  while ((now = value.load(std::memory_order_acquire)) == old)
    value.wait(old, std::memory_order_acquire);
  return now;
}

}  // namespace

ThreadPool::ThreadPool(int threads, Pin pin) : ranges_(static_cast<size_t>(std::max(threads, 1))) {
  start_threads(
      workers_, "computing", std::max(threads, 1) - 1, [this](int i) { work(i + 1); },
      [this] { end_work(); });
  if (pin == Pin::no) return;
  const std::vector<int> cpus = usable_cpus();
  for (size_t i = 0; i < workers_.size() && !cpus.empty(); ++i)
    keep_to(workers_[i], cpus[(i + 1) % cpus.size()]);
}

ThreadPool::~ThreadPool() {
  end_work();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::end_work() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
}

void ThreadPool::run(const Job& job) {
  job_ = job;
  divide(job);
  inside_.store(0, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take_chunks(job, 0);
  // Closes the job, of which nothing is left to take: threads that have not come yet need not come
  // any more.
  for (uint32_t now = inside_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
       now != kClosed;)
    now = wait_change(inside_, now);
  if (failure_) {
    std::exception_ptr failure = std::exchange(failure_, nullptr);
    std::rethrow_exception(failure);
  }
}

// Whole chunks for each thread.
void ThreadPool::divide(const Job& job) {
  const int64_t chunks = (job.count + job.grain - 1) / job.grain, threads = std::ssize(ranges_);
  int64_t begin = 0;
  for (int64_t t = 0; t < threads; ++t) {
    Range& range = ranges_[static_cast<size_t>(t)];
    range.next.store(begin, std::memory_order_relaxed);
    begin = range.end = std::min(chunks * (t + 1) / threads * job.grain, job.count);
  }
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    seen = wait_change(epoch_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!join()) continue;
    take_chunks(job_, worker);
    leave();
  }
}

// The open job stays as it is from here to leave(). It may be a later one than the worker was woken
// for.
bool ThreadPool::join() {
  uint32_t now = inside_.load(std::memory_order_relaxed);
  while ((now & kClosed) == 0) {
    if (inside_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  if (inside_.fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) inside_.notify_one();
}

// Its indices from `begin` on; 0: nothing is left of the range.
int64_t ThreadPool::take_chunk(const Job& job, Range& range, int64_t& begin) {
  const int64_t least = std::max<int64_t>(job.grain / 4, 1);
  begin = range.next.load(std::memory_order_relaxed);
  while (begin < range.end) {
    const int64_t left = range.end - begin, half = left / 2 / least * least;
    const int64_t size = std::min({job.grain, std::max(half, least), left});
    if (range.next.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed))
      return size;
  }
  return 0;
}

void ThreadPool::take_chunks(const Job& job, int worker) {
  const size_t threads = ranges_.size();
  try {
    for (size_t i = 0; i < threads; ++i) {
      Range& range = ranges_[(static_cast<size_t>(worker) + i) % threads];
      int64_t begin = 0;
      while (const int64_t size = take_chunk(job, range, begin))
        job.call(job.body, begin, begin + size, worker);
    }
  } catch (...) {
    for (Range& range : ranges_) range.next.store(range.end, std::memory_order_relaxed);
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

int usable_threads() {
  double cpus = static_cast<double>(usable_cpus().size());
  if (const std::optional<double> quota = cpu_quota()) cpus = std::min(cpus, std::ceil(*quota));
  return std::max(static_cast<int>(cpus), 1);
}

}  // namespace sluice
