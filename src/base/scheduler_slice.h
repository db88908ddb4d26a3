// The kernel's time slice: how soon a thread runs that wakes while other programs compute.
#pragma once

#include <cstdint>

namespace sluice {

// Slices that sched_setattr(2) accepts [microseconds]; 0: the system's default.
inline constexpr int64_t kLeastSlice = 100;
inline constexpr int64_t kLargestSlice = 100'000;

struct SchedulerSlice {
  int64_t asked = 0;      // [microseconds]
  bool in_force = false;  // the kernel has accepted it
};

// Requests a slice [microseconds] for every thread of the process; threads that they start later
// inherit it. Under Linux's EEVDF scheduler a thread with a shorter slice runs sooner after it
// wakes, and gets no larger share. Linux 6.12 and later accept it for threads of the policy
// SCHED_OTHER, without privileges; elsewhere nothing changes. `in_force` is the calling
// thread's.
SchedulerSlice ask_scheduler_slice(int64_t microseconds);

// The slice of the calling thread [microseconds]; 0 where the kernel does not say.
uint64_t scheduler_slice_of_thread();

}  // namespace sluice
