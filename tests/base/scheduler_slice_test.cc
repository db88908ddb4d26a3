#include "src/base/scheduler_slice.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace sluice {
namespace {

// The slice that a thread has whose creator has just asked for one.
uint64_t slice_of_new_thread() {
  uint64_t slice = 0;
  std::thread([&] { slice = scheduler_slice_of_thread(); }).join();
  return slice;
}

TEST(SchedulerSlice, IsThatOfAllThreadsWhereTheKernelTakesIt) {
  std::latch asked(1);
  uint64_t of_older_thread = 0;
  std::thread older([&] {
    asked.wait();
    of_older_thread = scheduler_slice_of_thread();
  });
  const SchedulerSlice slice = ask_scheduler_slice(300);
  asked.count_down();
  older.join();
  EXPECT_EQ(slice.asked, 300);
  EXPECT_EQ(scheduler_slice_of_thread() == 300, slice.in_force);
  EXPECT_EQ(of_older_thread == 300, slice.in_force);
  EXPECT_EQ(slice_of_new_thread() == 300, slice.in_force);
}

TEST(SchedulerSlice, NoneLeavesTheThreadAlone) {
  const uint64_t before = scheduler_slice_of_thread();
  EXPECT_FALSE(ask_scheduler_slice(0).in_force);
  EXPECT_EQ(scheduler_slice_of_thread(), before);
}

}  // namespace
}  // namespace sluice
