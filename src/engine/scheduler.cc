#include "src/engine/scheduler.h"

#include <algorithm>
#include <span>

#include "src/base/units.h"

namespace sluice {
namespace {

// A request of priority p is served as if it had come so many requests later: the others go first,
// and it does not wait for ever.
constexpr int64_t kArrivalsAPriority = 1000;

// Rows that a job could use: to the end of its prompt, or from there to its last token.
int64_t rows_wanted(const Job& job) {
  int64_t stored = job.sequence.length();
  int64_t end = stored < job.prompt_tokens ? job.prompt_tokens : std::ssize(job.ids);
  return end - stored;
}

// Returns whether the job has lost all of its tokens because a state cannot go back. Known prefixes
// are then looked up as for a job that waits.
bool begins_again(const Job& job, const BlockManager& blocks) {
  return blocks.has_states() && job.sequence.length() == 0 &&
         job.sequence.table().blocks_held() == 0;
}

}  // namespace

bool Scheduler::fits(int64_t tokens, int64_t sequences) const {
  return sequences * blocks_.most_blocks(tokens, limits_.rows) <= blocks_.size();
}

void Scheduler::add(Job& job) {
  job.order = {arrivals_ + job.priority * kArrivalsAPriority, arrivals_, arrivals_};
  ++arrivals_;
  waiting_.emplace(job.order, &job);
}

void Scheduler::add_fork(Job& job, const Job& of) {
  job.order = {of.order[0], of.order[1], arrivals_++};
  bool room = running_.contains(of.order) && std::ssize(running_) < limits_.sequences;
  if (!room) job.sequence.suspend();
  (room ? running_ : waiting_).emplace(job.order, &job);
}

void Scheduler::remove(Job& job) {
  if (running_.erase(job.order) == 0) waiting_.erase(job.order);
  job.sequence.release();
}

void Scheduler::wait_again(Job& job) {
  if (running_.erase(job.order) > 0) waiting_.emplace(job.order, &job);
}

// Returns whether the copies take so long that a step should not wait for them.
bool Scheduler::arrive_late(std::span<const BlockCopy> copies) const {
  return std::ranges::any_of(copies, [&](const BlockCopy& c) {
    return c.from.tier == Tier::disk || (c.from.tier == Tier::host && limits_.host_is_far);
  });
}

void Scheduler::preempt(Job& job) {
  running_.erase(job.order);
  waiting_.emplace(job.order, &job);
  job.sequence.suspend();
  ++preemptions_;
  auto scheduled = std::ranges::find(step_, &job, &ScheduledJob::job);
  if (scheduled == step_.end()) return;
  rows_left_ += scheduled->rows;
  step_.erase(scheduled);
}

bool Scheduler::reserve(Job& job, int64_t rows, bool rewindable) {
  int64_t first = job.sequence.length();
  BlockTable& table = job.sequence.table();
  if (table.missing(first, first + rows, rewindable) > blocks_.free_blocks()) return false;
  return table.reserve(first, first + rows, copies_, rewindable);
}

const std::vector<ScheduledJob>& Scheduler::schedule() {
  step_.clear();
  copies_.clear();
  rows_left_ = limits_.rows;
  arriving_ = 0;
  int64_t preempted_before = preemptions_;
  // Whoever generates gets on in every step; what is left goes to prompts.
  for (bool prompts : {false, true}) {
    for (auto at = running_.begin(); at != running_.end() && room_in_step();) {
      Job& job = *at->second;
      if (begins_again(job, blocks_)) {
        wait_again(job);
      } else if ((rows_wanted(job) > 1) == prompts) {
        run(job);
      }
      at = running_.upper_bound(job.order);
    }
  }
  while (preemptions_ == preempted_before && room_in_step() && !waiting_.empty()) {
    if (!admit(*waiting_.begin()->second)) break;
  }
  // If all running jobs wait for one that has no room, the last running job is preempted.
  while (step_.empty() && !waiting_.empty() && !admit(*waiting_.begin()->second)) {
    if (running_.empty() || running_.rbegin()->first < waiting_.begin()->first) break;
    preempt(*running_.rbegin()->second);
  }
  return step_;
}

bool Scheduler::room_in_step() const {
  return rows_left_ > 0 && std::ssize(step_) + arriving_ < limits_.sequences;
}

// A step ends where states are kept: at planned positions, and at the last border in a prompt, as
// another turn of a conversation may go on from there.
int64_t Scheduler::rows_to_snapshot(const Job& job) const {
  const int64_t length = job.sequence.length(), border = blocks_.last_border(job.prompt_tokens - 1);
  const int64_t rows = blocks_.rows_to_snapshot(length);
  return blocks_.has_states() && length < border ? std::min(rows, border - length) : rows;
}

void Scheduler::run(Job& job) {
  const int64_t to_snapshot = rows_to_snapshot(job);
  int64_t rows = std::min({rows_left_, rows_wanted(job), to_snapshot});
  if (rows == 0) return;
  while (!reserve(job, rows, false)) {
    Job& last = *running_.rbegin()->second;
    preempt(last);
    if (&last == &job) return;
  }
  bool to_the_end = job.sequence.length() + rows == std::ssize(job.ids);
  int64_t room = std::min(rows_left_, to_snapshot) - rows;
  int64_t drafted = to_the_end ? std::min(room, std::ssize(job.draft_ids)) : 0;
  // Draft tokens are no reason to preempt anybody.
  if (drafted > 0 && !reserve(job, rows + drafted, true)) drafted = 0;
  step_.push_back({&job, rows + drafted, drafted});
  rows_left_ -= rows + drafted;
}

// Admits the job if there is room for all of its tokens, not only for its next rows.
bool Scheduler::admit(Job& job) {
  int64_t findable = std::min(std::ssize(job.ids) - 1, job.findable);
  PrefixMatch known = job.sequence.match(std::span(job.ids).first(static_cast<size_t>(findable)));
  int64_t blocks = blocks_.most_blocks(std::ssize(job.ids), limits_.rows);
  if (blocks - known.in_use > blocks_.free_blocks()) return false;
  bool awaited = arriving_ == 0 && arrive_late(copies_);  // by one that runs in this step
  size_t before = copies_.size();
  job.sequence.adopt(known, copies_);
  prefix_tokens_ += job.sequence.length();
  if (job.found < 0) job.found = job.sequence.length();
  waiting_.erase(job.order);
  running_.emplace(job.order, &job);
  bool reads = arrive_late(std::span(copies_).subspan(before));
  // Whoever is admitted after one that arrives may have found what is only being read.
  if (arriving_ > 0 || (reads && !awaited && !step_.empty())) {
    ++arriving_;
  } else {
    run(job);
  }
  return true;
}

}  // namespace sluice
