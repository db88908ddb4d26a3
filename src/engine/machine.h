// The machine that models are planned for and run on: its memory and budgets, its threads and its
// device. A draft model has its target's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/backend.h"
#include "src/base/thread_pool.h"
#include "src/engine/model_options.h"
#include "src/engine/placed.h"
#include "src/load/streamer.h"
#include "src/memory/ledger.h"
#include "src/memory/system.h"
#include "src/nn/group.h"

namespace sluice {

class Machine {
 public:
  // Asks the system for its free memory, of which ranks of one host have equal parts unless they
  // are told theirs. Error(usage) for a budget that is none.
  Machine(const ModelOptions& options, const Group& group);
  Machine(const Machine&) = delete;

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  ThreadPool& pool() { return pool_; }
  Backend& backend() const { return *backend_; }
  Backend* host() const { return host_.get(); }  // the CPU beside a device; null: there is none
  const FreeMemory& free_memory() const { return free_; }
  // Bytes read so far, over time.
  DiskTimeline& timeline() { return timeline_; }
  const DiskTimeline& timeline() const { return timeline_; }

  // Budget of the whole process [bytes].
  uint64_t budget() const { return budget_; }
  void lower_budget(uint64_t bytes) { budget_ = bytes; }  // the ledger follows by follow_budget()
  void follow_budget() { ledger_.set_budget(Place::host, budget_); }
  // Budget of the device's memory [bytes]; 0: its memory is the host's.
  uint64_t device_budget() const { return device_budget_; }
  // The budget that is left of a cgroup's limit which was lowered since the last call; none where
  // it was not.
  std::optional<uint64_t> lowered_limit();

  // Notes the process's memory after headers and tokenizer are read: plans count with it.
  // `peak_before`: of the process, before that.
  void note_process(uint64_t peak_before);
  void note_peak(uint64_t peak);                             // of the process
  uint64_t process_bytes() const { return process_bytes_; }  // as noted
  uint64_t start_peak() const { return start_peak_; }        // as noted

  // Leases what the process holds beside the plan that will be loaded, and notes what a device must
  // have for it, draft models included.
  void hold_process(const Placed& placed);
  // Leases bytes for input beside the plan, in place of the earlier lease: long words of a text
  // (TokenStream::Reserve), or token ids before they are planned. Error(no_fit) that begins with
  // `what` where the budget has no room.
  void hold_input(std::string_view what, uint64_t bytes);
  // Takes the device's memory for all that is placed, once, before the first load.
  void reserve_device();
  // Gives it back, unless a draft model is still there.
  void free_device();

 private:
  void set_device_budget(const ModelOptions& options);

  Ledger ledger_;
  DiskTimeline timeline_{ledger_.start()};
  FreeMemory free_ = sluice::free_memory();
  ThreadPool pool_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Backend> host_;
  uint64_t budget_ = 0;
  uint64_t device_budget_ = 0;
  uint64_t device_peak_ = 0;  // as planned
  bool device_reserved_ = false;
  uint64_t process_bytes_ = 0;
  uint64_t start_peak_ = 0;
  std::optional<uint64_t> planned_;  // bytes of the plan, without input; none: nothing is placed
  std::optional<uint64_t> cgroup_limit_;  // as it was last seen
  Lease process_;
  Lease input_;
};

}  // namespace sluice
