#include "src/engine/machine.h"

#include <malloc.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// `all`: what a share is of.
uint64_t parse_budget(const char* option, const std::string& text, uint64_t all) {
  uint64_t bytes = parse_size(option, text, all);
  if (bytes == 0) fail(ErrorKind::usage, "{} {}: must be more than 0", option, text);
  return bytes;
}

int thread_count(const ModelOptions& options, const Group& group) {
  if (options.threads > 0) return options.threads;
  return std::max(usable_threads() / group.sharing().cpus, 1);
}

}  // namespace

Machine::Machine(const ModelOptions& options, const Group& group)
    : pool_(thread_count(options, group), options.pin_threads),
      backend_(options.backend != nullptr ? options.backend
                                          : make_cpu_backend(options.isa, pool_)) {
  const auto sharers = static_cast<uint64_t>(group.sharing().host);
  budget_ = options.memory
                ? parse_budget("--memory", *options.memory, (free_.own + free_.free) / sharers)
                : free_.budget / sharers;
  ledger_.set_budget(Place::host, budget_);
  set_device_budget(options);
  if (auto cgroup = cgroup_memory()) cgroup_limit_ = cgroup->limit;
}

// Sets the budget of a device with memory of its own: its free memory, less a reserve for other
// users of the device.
void Machine::set_device_budget(const ModelOptions& options) {
  if (!backend_->device().has_own_memory()) return;
  host_ = make_cpu_backend(options.isa, pool_);
  const uint64_t free = backend_->device().free_bytes();
  device_budget_ = options.device_memory
                       ? parse_budget("--device-memory", *options.device_memory, free)
                       : free - std::min(free, std::clamp(free / 20, 64 * MiB, GiB));
  ledger_.set_budget(Place::device, device_budget_);
}

// The peak of reading them is known only if it is above every peak before.
void Machine::note_process(uint64_t peak_before) {
  const uint64_t peak = process_peak_rss();
  map_program_code();
  malloc_trim(0);  // returns to the system what parsing freed
  process_bytes_ = process_rss();
  note_peak(peak > peak_before ? peak : process_bytes_);
}

void Machine::note_peak(uint64_t peak) { start_peak_ = std::max(start_peak_, peak); }

// Input has a lease of its own.
void Machine::hold_process(const Placed& placed) {
  const uint64_t input = Buffer::charged_bytes(placed.shape.input_bytes);
  process_ = {};
  process_ = ledger_.lease(Place::host, Use::runtime, "process", placed.memory.runtime - input);
  planned_ = placed.memory.needed() - input;
  device_peak_ = placed.memory.device.peak();
}

void Machine::hold_input(std::string_view what, uint64_t bytes) {
  input_ = {};
  const uint64_t taken = planned_.value_or(process_bytes_ + kernel_bytes(process_bytes_));
  const uint64_t room = budget_ - std::min(budget_, taken);
  if (bytes > room) {
    fail(ErrorKind::no_fit,
         "{} needs {} of memory, but only {} of the budget of {} are left; raise --memory", what,
         format_size(bytes), format_size(room), format_size(budget_));
  }
  if (bytes > 0) input_ = ledger_.lease(Place::host, Use::workspace, "input", bytes);
}

void Machine::reserve_device() {
  if (device_reserved_) return;
  backend_->device().reserve(device_peak_);
  device_reserved_ = true;
}

void Machine::free_device() {
  if (!device_reserved_ || ledger_.used(Place::device) > 0) return;
  try {
    backend_->device().reserve(0);
  } catch (const Error& e) {  // a broken device gives nothing back
    log::warning("{}", e.what());
  }
  device_reserved_ = false;
}

std::optional<uint64_t> Machine::lowered_limit() {
  const std::optional<CgroupMemory> cgroup = cgroup_memory();
  const std::optional<uint64_t> limit = cgroup ? cgroup->limit : std::nullopt;
  const bool lowered = limit && (!cgroup_limit_ || *limit < *cgroup_limit_);
  cgroup_limit_ = limit;
  if (!lowered) return std::nullopt;
  const uint64_t left = *limit - std::min(*limit, cgroup->used);
  const uint64_t over = cgroup->used - std::min(*limit, cgroup->used);
  const uint64_t own = process_rss() + left;
  return own - std::min(own, over);
}

}  // namespace sluice
