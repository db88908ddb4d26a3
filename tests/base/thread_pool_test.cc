#include "src/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace sluice {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 1000}) {
      for (int64_t grain : {1, 3, 2000}) {
        std::vector<int> seen(static_cast<size_t>(count), 0);
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, pool.size());
          EXPECT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), count);
        for (int s : seen) EXPECT_EQ(s, 1);
      }
    }
  }
}

TEST(ThreadPool, PinnedThreadsKeepToACpu) {
  const auto cpus = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  };
  const int usable = cpus();
  for (ThreadPool::Pin pin : {ThreadPool::Pin::no, ThreadPool::Pin::yes}) {
    ThreadPool pool(3, pin);
    std::atomic<int> workers = 0;
    while (workers == 0) {
      pool.parallel_for(1000, 1, [&](int64_t, int64_t, int worker) {
        if (worker == 0) return std::this_thread::yield();
        EXPECT_EQ(cpus(), pin == ThreadPool::Pin::yes ? 1 : usable);
        ++workers;
      });
    }
  }
  EXPECT_EQ(cpus(), usable);  // the calling thread stays free
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [](int64_t begin, int64_t, int) {
                                     if (begin == 37) throw std::runtime_error("37");
                                   }),
                 std::runtime_error);
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(100, 7, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    EXPECT_EQ(sum, 100);
  }
}

}  // namespace
}  // namespace sluice
