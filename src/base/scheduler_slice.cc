#include "src/base/scheduler_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

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

constexpr pid_t kCallingThread = 0;

// Kernels that have no slices say 0.
bool get(pid_t thread, Attributes& attributes) {
  return syscall(SYS_sched_getattr, thread, &attributes, sizeof attributes, 0) == 0;
}

void set_slice(pid_t thread, uint64_t nanoseconds) {
  Attributes attributes;
  if (!get(thread, attributes) || attributes.policy != SCHED_OTHER) return;
  attributes.runtime = nanoseconds;
  syscall(SYS_sched_setattr, thread, &attributes, 0);
}

}  // namespace

uint64_t scheduler_slice_of_thread() {
  Attributes attributes;
  return get(kCallingThread, attributes) ? attributes.runtime / 1000 : 0;
}

SchedulerSlice ask_scheduler_slice(int64_t microseconds) {
  if (microseconds == 0) return {};
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::string name = task.path().filename().string();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    set_slice(thread, static_cast<uint64_t>(microseconds) * 1000);
  }
  return {.asked = microseconds,
          .in_force = scheduler_slice_of_thread() == static_cast<uint64_t>(microseconds)};
}

}  // namespace sluice
