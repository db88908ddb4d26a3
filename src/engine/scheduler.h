// Decides which requests run in the next step, and with how many of their tokens. A state machine
// without I/O: it moves blocks between sequences, and does not know what they hold.
//
// Requests are served in order of arrival; a level of priority counts as a number of arrivals
// later. Running requests go first, so that each proceeds in every step (continuous batching, as
// Orca, OSDI 2022). A prompt gets the remaining rows, chunk by chunk, beside generated tokens
// (chunked prefill, as Sarathi, arXiv:2308.16369). If no KV block is left, the last one to arrive
// is preempted: it gives up its blocks, which may still be found as a prefix, and waits again. So
// the first one always proceeds, and every request becomes the first.
//
// A request whose first blocks are on disk, or in host memory beside a device, runs one step after
// their restore has begun, unless there is nothing else to do.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "src/kv/sequence.h"

namespace sluice {

// A request as the scheduler sees it. The caller owns it.
struct Job {
  Job(Sequence kv, std::vector<int32_t> prompt)
      : sequence(std::move(kv)), ids(std::move(prompt)), prompt_tokens(std::ssize(ids)) {}

  Sequence sequence;
  std::vector<int32_t> ids;  // prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t first_length = prompt_tokens;  // the length that counts for the rope of the first tokens
  std::vector<int32_t> draft_ids;        // proposed to follow, verified where there is room
  int64_t priority = 0;                  // lower goes first
  // Tokens at the beginning that may come from a known prefix, because their rows are not needed.
  int64_t findable = INT64_MAX;
  int64_t found = -1;  // tokens found as a prefix when it began; -1: it has not begun

  // The scheduler's order: the arrival with its priority, the arrival, and a fork's own. Later ones
  // wait first, and are preempted first. Forks of one job follow one another: else one could wait
  // for blocks of a later job that waits for its own fork.
  using Order = std::array<int64_t, 3>;
  Order order = {};
};

// The next `rows` tokens of a job: of its ids and, after their last, of its draft tokens.
struct ScheduledJob {
  Job* job = nullptr;
  int64_t rows = 0;
  int64_t drafted = 0;  // rows of draft tokens
};

class Scheduler {
 public:
  // Limits of a step: rows and sequences.
  struct Limits {
    int64_t rows = 0;
    int64_t sequences = 0;
    bool host_is_far = false;  // the blocks' device has memory of its own
  };
  Scheduler(const BlockManager& blocks, Limits limits) : blocks_(blocks), limits_(limits) {}

  // Returns whether `sequences` sequences of `tokens` tokens each could ever run together.
  bool fits(int64_t tokens, int64_t sequences = 1) const;
  // The job lives until it is removed; its sequence is of the scheduler's blocks.
  void add(Job& job);
  // `job` shares the blocks of another job, and runs beside it where there is room for one more.
  void add_fork(Job& job, const Job& of);
  // Its sequence has lost its tokens: it waits for room, in its order.
  void wait_again(Job& job);
  // Finished or given up; its blocks are free. At any time between steps.
  void remove(Job& job);

  // A job all of whose tokens are stored waits for a further one, and keeps its blocks. Every
  // scheduled job's blocks are reserved. Copies that have to be made before the step are in
  // copies().
  const std::vector<ScheduledJob>& schedule();
  const std::vector<BlockCopy>& copies() const { return copies_; }
  // Returns whether restores among the copies may run beside the step, until the next one.
  bool copies_beside() const { return arriving_ > 0; }

  bool idle() const { return waiting_.empty() && running_.empty(); }
  int64_t waiting() const { return std::ssize(waiting_); }
  int64_t running() const { return std::ssize(running_); }
  int64_t preemptions() const { return preemptions_; }
  // Tokens found as prefixes when sequences began, or began again.
  int64_t prefix_tokens() const { return prefix_tokens_; }

 private:
  using Queue = std::map<Job::Order, Job*>;

  bool arrive_late(std::span<const BlockCopy> copies) const;
  bool room_in_step() const;
  int64_t rows_to_snapshot(const Job& job) const;
  bool reserve(Job& job, int64_t rows, bool rewindable);
  void run(Job& job);
  bool admit(Job& job);
  void preempt(Job& job);

  const BlockManager& blocks_;
  Limits limits_;
  int64_t arrivals_ = 0;
  int64_t preemptions_ = 0;
  int64_t prefix_tokens_ = 0;
  Queue waiting_;
  Queue running_;
  // State of the step that is being made.
  std::vector<ScheduledJob> step_;
  std::vector<BlockCopy> copies_;
  int64_t rows_left_ = 0;
  int64_t arriving_ = 0;  // admitted jobs that run from the next step on
};

}  // namespace sluice
