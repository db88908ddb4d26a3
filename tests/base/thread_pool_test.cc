#include "src/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
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

// Each thread begins with its own part, and goes through it in order.
TEST(ThreadPool, ARangeIsTakenInOrder) {
  constexpr int64_t kCount = 90;
  ThreadPool pool(3);
  std::atomic<int> here = 0;
  std::vector<int64_t> first(3, -1), last(3, -1);
  pool.parallel_for(kCount, 2, [&](int64_t begin, int64_t, int worker) {
    const auto w = static_cast<size_t>(worker);
    if (first[w] < 0) {
      first[w] = begin;
      ++here;
      while (here < 3) std::this_thread::yield();  // nobody takes from another's range yet
    } else if (begin / 30 == worker) {
      EXPECT_GT(begin, last[w]);
    }
    if (begin / 30 == worker) last[w] = begin;
  });
  EXPECT_EQ(first, (std::vector<int64_t>{0, 30, 60}));
}

// Other threads take the chunks of a thread that lost its core.
TEST(ThreadPool, OthersDoWhatAThreadHasNotBegun) {
  constexpr int64_t kCount = 64;
  ThreadPool pool(2);
  std::vector<int> by(kCount, -1);
  std::atomic<int64_t> done = 0;
  pool.parallel_for(kCount, 1, [&](int64_t begin, int64_t, int worker) {
    by[static_cast<size_t>(begin)] = worker;
    ++done;
    // The second thread stays in its first chunk until all others are done.
    while (worker == 1 && done < kCount) std::this_thread::yield();
  });
  EXPECT_EQ(done, kCount);
  EXPECT_LE(std::ranges::count(by, 1), 1);
  EXPECT_EQ(by[0], 0);
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
