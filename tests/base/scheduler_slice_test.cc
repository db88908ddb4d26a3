#include "src/base/scheduler_slice.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

// Runs `work` on a thread of its own, so that the tests' own keeps its slice.
void on_a_thread(auto work) { std::thread(work).join(); }

TEST(SchedulerSlice, IsInheritedWhereTheKernelTakesIt) {
  on_a_thread([] {
    const SchedulerSlice slice = ask_scheduler_slice(300);
    EXPECT_EQ(slice.asked, 300);
    EXPECT_EQ(scheduler_slice_of_thread() == 300, slice.in_force);
    on_a_thread([&] { EXPECT_EQ(scheduler_slice_of_thread() == 300, slice.in_force); });
  });
}

TEST(SchedulerSlice, NoneLeavesTheThreadAlone) {
  const uint64_t before = scheduler_slice_of_thread();
  on_a_thread([&] {
    EXPECT_FALSE(ask_scheduler_slice(0).in_force);
    EXPECT_EQ(scheduler_slice_of_thread(), before);
  });
}

}  // namespace
}  // namespace sluice
