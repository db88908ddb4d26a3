// How soon the kernel serves a thread that wakes while other programs compute.
#pragma once

#include <cstdint>

namespace sluice {

// What sched_setattr(2) takes [microseconds]; 0: as the system has it.
inline constexpr int64_t kLeastSlice = 100;
inline constexpr int64_t kLargestSlice = 100'000;

struct SchedulerSlice {
  int64_t asked = 0;      // [microseconds]
  bool in_force = false;  // the kernel has taken it
};

// Asks for a slice of so many microseconds for every thread of the process; the threads that they
// start from then on inherit it. Under Linux's EEVDF scheduler a thread with a shorter slice is
// served sooner after it wakes, and gets no larger share. Linux 6.12 and later take it for threads
// of the policy SCHED_OTHER, without privileges; elsewhere nothing changes. `in_force` is the
// calling thread's.
SchedulerSlice ask_scheduler_slice(int64_t microseconds);

// The slice of the calling thread [microseconds]; 0 where the kernel does not say.
uint64_t scheduler_slice_of_thread();

}  // namespace sluice
