#include "src/base/scheduler_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice {
namespace {

// struct sched_attr of the first version, sched_setattr(2). The kernel's header for it cannot be
// included beside <sched.h> of every glibc.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of SCHED_OTHER: the slice [nanoseconds]
  uint64_t deadline = 0;
  uint64_t period = 0;
};

// The calling thread's. Kernels that have no slices say 0.
bool get(Attributes& attributes) {
  return syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
}

}  // namespace

uint64_t scheduler_slice_of_thread() {
  Attributes attributes;
  return get(attributes) ? attributes.runtime / 1000 : 0;
}

SchedulerSlice ask_scheduler_slice(int64_t microseconds) {
  SchedulerSlice slice{.asked = microseconds};
  Attributes attributes;
  if (microseconds == 0 || !get(attributes) || attributes.policy != SCHED_OTHER) return slice;
  attributes.runtime = static_cast<uint64_t>(microseconds) * 1000;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) == 0)
    slice.in_force = scheduler_slice_of_thread() == static_cast<uint64_t>(microseconds);
  return slice;
}

}  // namespace sluice
