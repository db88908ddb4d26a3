#include "src/engine/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/fake_kv.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

constexpr int64_t kBlockSize = 4, kBlocks = 40, kStepRows = 24, kMostSequences = 8;

// Requests that come, run, are given up and end, with blocks for a few of them.
class Simulation {
 public:
  Simulation(const BlockOptions& options, bool host_is_far)
      : blocks_(options),
        kv_(options, host_is_far),
        scheduler_(blocks_, {kStepRows, kMostSequences, host_is_far}) {}

  struct Request : Job {
    using Job::Job;
    int64_t tokens = 0;  // when it ends
    int64_t steps = 0;   // since it came
  };

  void add(test::Random& random) {
    std::vector<int32_t> prompt(static_cast<size_t>(random.between(1, 60)));
    for (int32_t& id : prompt) id = random.uniform() < 0.05;  // many common beginnings
    auto r = std::make_unique<Request>(Sequence(blocks_), prompt);
    r->tokens = std::ssize(prompt) + random.between(1, 60);
    r->priority = random.uniform() < 0.1 ? random.between(-1, 1) : 0;
    ASSERT_TRUE(scheduler_.fits(r->tokens));
    scheduler_.add(*r);
    requests_.push_back(std::move(r));
  }

  void cancel(test::Random& random) {
    if (requests_.empty()) return;
    end(static_cast<size_t>(random.between(0, std::ssize(requests_) - 1)));
  }

  void step(test::Random& random) {
    for (auto& r : requests_) r->draft_ids.resize(random.uniform() < 0.2 ? 3 : 0);
    auto step = scheduler_.schedule();
    kv_.copy(scheduler_.copies(), scheduler_.copies_beside());
    if (kv_.late()) ++beside_;
    ASSERT_TRUE(!step.empty() || requests_.empty()) << "nobody gets on";
    std::set<const Job*> seen;
    int64_t rows = 0;
    for (const ScheduledJob& s : step) {
      ASSERT_TRUE(seen.insert(s.job).second);
      ASSERT_GT(s.rows, s.drafted);
      rows += s.rows;
      run(s, random);
    }
    ASSERT_LE(rows, kStepRows);
    ASSERT_LE(scheduler_.running(), kMostSequences);
    for (size_t i = requests_.size(); i-- > 0;) {
      ++requests_[i]->steps;
      if (requests_[i]->priority == 0) longest_ = std::max(longest_, requests_[i]->steps);
      if (std::ssize(requests_[i]->ids) < requests_[i]->tokens) continue;
      ++finished_;
      end(i);
    }
  }

  bool idle() const { return requests_.empty(); }
  int64_t finished() const { return finished_; }
  // Steps that a request took, of those without a priority.
  int64_t longest() const { return longest_; }
  // Steps beside which blocks came back.
  int64_t beside() const { return beside_; }
  int64_t count() const { return std::ssize(requests_); }
  const Scheduler& scheduler() const { return scheduler_; }
  const BlockManager& blocks() const { return blocks_; }

 private:
  void run(const ScheduledJob& s, test::Random& random) {
    Job& job = *s.job;
    std::vector<int32_t> ids = job.ids;
    ids.insert(ids.end(), job.draft_ids.begin(), job.draft_ids.end());
    int64_t before = job.sequence.length();
    kv_.store(blocks_, job.sequence, ids, s.rows);
    if (before + s.rows - s.drafted == std::ssize(job.ids)) {
      int64_t right = random.between(0, s.drafted);
      job.ids.insert(job.ids.end(), job.draft_ids.begin(), job.draft_ids.begin() + right);
      job.sequence.truncate(before + s.rows - s.drafted + right);
      job.ids.push_back(static_cast<int32_t>(random.uniform() < 0.05));
    }
    job.sequence.table().remember(
        std::span(job.ids).first(static_cast<size_t>(job.sequence.length())));
    kv_.expect(blocks_, job.sequence, job.ids);
  }

  void end(size_t i) {
    scheduler_.remove(*requests_[i]);
    requests_.erase(requests_.begin() + static_cast<long>(i));
  }

  BlockManager blocks_;
  test::FakeKv kv_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Request>> requests_;
  int64_t finished_ = 0;
  int64_t longest_ = 0;
  int64_t beside_ = 0;
};

BlockOptions grouped(std::array<int64_t, kTiers> blocks, std::vector<KvGroup> groups) {
  return {.block_size = kBlockSize,
          .groups = std::move(groups),
          .blocks = blocks,
          .costs = {1, {0, 0.01, 0.02}, {0, 0.01, 0.02}},
          .snapshot_tokens = 4 * kBlockSize};
}
BlockOptions options(std::array<int64_t, kTiers> blocks,
                     const std::vector<int64_t>& windows = {0}) {
  std::vector<KvGroup> groups;
  for (int64_t window : windows) groups.push_back({KvKind::tokens, kBlockSize, window, 0});
  return grouped(blocks, std::move(groups));
}

constexpr KvGroup kAll{KvKind::tokens, kBlockSize, 0, 0},
    kChunksOfTwice{KvKind::latent, 2 * kBlockSize, 0, 10}, kState{KvKind::state, kBlockSize, 0, 0};

struct SchedulerCase {
  const char* name;
  BlockOptions options;
  int64_t requests;
  bool host_is_far = false;
};
void PrintTo(const SchedulerCase& c, std::ostream* out) { *out << c.name; }

class SchedulerTest : public testing::TestWithParam<SchedulerCase> {};

TEST_P(SchedulerTest, RandomRequestsAllEndAndLeakNoBlock) {
  test::Random random("scheduler");
  Simulation simulation(GetParam().options, GetParam().host_is_far);
  const int64_t kRequests = GetParam().requests / (test::is_brief() ? 12 : 1);
  int64_t added = 0, cancelled = 0;
  while (added < kRequests || !simulation.idle()) {
    while (added < kRequests && simulation.count() < 30 && random.uniform() < 0.7) {
      simulation.add(random);
      ++added;
    }
    if (random.uniform() < 0.02 && !simulation.idle()) {
      simulation.cancel(random);
      ++cancelled;
    }
    simulation.step(random);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  EXPECT_EQ(simulation.finished() + cancelled, kRequests);
  EXPECT_TRUE(simulation.blocks().idle());
  EXPECT_TRUE(simulation.scheduler().idle());
  EXPECT_GT(simulation.scheduler().preemptions(), 100);
  EXPECT_LT(simulation.longest(), 3000);
  EXPECT_EQ(simulation.blocks().stats().restored > 100, GetParam().options.blocks[1] > 0);
  EXPECT_EQ(simulation.beside() > 100, GetParam().options.blocks[2] > 0 || GetParam().host_is_far);
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, SchedulerTest,
    testing::Values(
        SchedulerCase{"device", options({kBlocks, 0, 0}), 100'000},
        SchedulerCase{"host_and_disk", options({kBlocks, 20, 40}), 30'000},
        SchedulerCase{"far_host", options({kBlocks, 20, 0}), 30'000, true},
        SchedulerCase{"far_host_and_disk", options({kBlocks, 20, 40}), 30'000, true},
        SchedulerCase{"windows_and_tiers", options({2 * kBlocks, 20, 40}, {0, 9}), 30'000},
        SchedulerCase{"states", grouped({kBlocks, 0, 0}, {kAll, kState}), 20'000},
        SchedulerCase{"all_kinds_and_tiers",
                      grouped({2 * kBlocks, 20, 40}, {kAll, kChunksOfTwice, kState}), 20'000}),
    [](const auto& p) { return std::string(p.param.name); });

TEST(Scheduler, ThousandsThatWaitAreServedInTheirOrder) {
  test::Random random("scheduler queue");
  BlockManager blocks(options({kBlocks, 0, 0}));
  Scheduler scheduler(blocks, {kStepRows, kMostSequences});
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 5000; ++i) {
    jobs.push_back(std::make_unique<Job>(
        Sequence(blocks), std::vector<int32_t>(static_cast<size_t>(random.between(1, 40)), i)));
    scheduler.add(*jobs.back());
  }
  size_t next = 0;  // the first that has not ended
  while (!scheduler.idle()) {
    for (const ScheduledJob& s : scheduler.schedule()) {
      s.job->sequence.grow(s.rows);
      auto at = static_cast<size_t>(s.job->order[1]);
      ASSERT_GE(at, next);
      ASSERT_LT(at, next + kMostSequences);
    }
    for (size_t i = next; i < std::min(jobs.size(), next + kMostSequences); ++i) {
      if (jobs[i] && jobs[i]->sequence.length() == jobs[i]->prompt_tokens) {
        scheduler.remove(*jobs[i]);
        jobs[i].reset();
      }
    }
    while (next < jobs.size() && !jobs[next]) ++next;
  }
  EXPECT_EQ(next, jobs.size());
}

// A beam whose tokens are all stored keeps its blocks until the other beams of its request have
// theirs, for which another request with as early an order may have to give way.
TEST(Scheduler, BeamsOfTwoRequestsOfOneOrderAllGetOn) {
  constexpr int64_t kPrompt = 2 * kBlockSize, kArrivalsAPriority = 1000;
  BlockManager blocks(options({6, 0, 0}));
  Scheduler scheduler(blocks, {kStepRows, kMostSequences});
  const std::vector<int32_t> prompt(kPrompt, 1), longer(kPrompt + 1, 1);
  ASSERT_TRUE(scheduler.fits(kPrompt + 1, 2));
  Job early(Sequence(blocks), prompt), late(Sequence(blocks), prompt);
  early.priority = 1;
  scheduler.add(early);
  for (int64_t i = 1; i < kArrivalsAPriority; ++i) {
    Job between(Sequence(blocks), prompt);
    scheduler.add(between);
    scheduler.remove(between);
  }
  scheduler.add(late);
  for (const ScheduledJob& s : scheduler.schedule()) s.job->sequence.grow(s.rows);
  Job early_fork(early.sequence.fork(), longer), late_fork(late.sequence.fork(), longer);
  scheduler.add_fork(early_fork, early);
  scheduler.add_fork(late_fork, late);
  for (Job* job : {&early, &late}) job->ids = longer;
  while (!scheduler.idle()) {
    const std::vector<ScheduledJob> step = scheduler.schedule();
    ASSERT_FALSE(step.empty()) << "nobody gets on";
    for (const ScheduledJob& s : step) s.job->sequence.grow(s.rows);
    for (auto [beam, fork] : {std::pair(&early, &early_fork), std::pair(&late, &late_fork)}) {
      if (beam->sequence.length() <= kPrompt || fork->sequence.length() <= kPrompt) continue;
      scheduler.remove(*beam);
      scheduler.remove(*fork);
    }
  }
  EXPECT_TRUE(blocks.idle());
}

}  // namespace
}  // namespace sluice
