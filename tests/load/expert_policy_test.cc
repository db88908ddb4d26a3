// The policy of the cache of experts: its rules on random choices, and its hit rates on traces.
#include "src/load/expert_policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <vector>

#include "src/load/reuse_distances.h"
#include "tests/load/expert_traces.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

// Plays random choices: a slot has one expert, an expert one slot; who is used keeps it; a hit is
// one that had it before.
template <class Policy>
void expect_promises(test::Random& random, Policy policy, uint32_t layers, uint32_t experts,
                     uint32_t slots, bool admits_all) {
  std::map<uint32_t, uint32_t> there;  // the slots of experts
  for (uint32_t step = 0; step < 100; ++step) {
    std::vector<ExpertUse> uses;
    for (uint32_t e = 0; e < experts; ++e)
      if (random.uniform() < 0.5) uses.push_back({.expert = step % layers * experts + e});
    policy.use(uses);
    for (const ExpertUse& use : uses) {
      EXPECT_EQ(use.is_hit, there.contains(use.expert));
      if (use.is_hit) {
        EXPECT_EQ(use.slot, there.at(use.expert));
      }
    }
    for (const ExpertUse& use : uses) {
      if (use.slot == ExpertUse::kNone) continue;
      ASSERT_LT(use.slot, slots);
      std::erase_if(there, [&](const auto& at) { return at.second == use.slot; });
      there[use.expert] = use.slot;
    }
    for (const ExpertUse& use : uses) {
      // None has lost its slot to another of them.
      EXPECT_TRUE(!use.is_hit || there.contains(use.expert));
      EXPECT_TRUE(!admits_all || uses.size() > slots || use.slot != ExpertUse::kNone);
    }
    for (uint32_t e = 0; e < layers * experts; ++e)
      EXPECT_EQ(policy.slot_of(e), there.contains(e) ? there.at(e) : ExpertUse::kNone);
  }
}

TEST(ExpertPolicy, KeepsItsPromisesOnRandomChoices) {
  test::Random random("expert policy");
  for (int round = 0; round < 100; ++round) {
    const auto layers = static_cast<uint32_t>(random.between(1, 4));
    const auto experts = static_cast<uint32_t>(random.between(1, 6));
    const auto slots = static_cast<uint32_t>(random.between(0, layers * experts));
    std::vector<uint32_t> layer_of;
    for (uint32_t e = 0; e < layers * experts; ++e) layer_of.push_back(e / experts);
    const PolicyRules rules{.half_life = random.uniform() < 0.3 ? 0 : 8 * random.uniform(),
                            .admits_all = random.uniform() < 0.5};
    const PolicyShape shape{layer_of, slots};
    expect_promises(random, ScoredPolicy(shape, rules), layers, experts, slots, rules.admits_all);
    expect_promises(random, ExpertPolicy(shape), layers, experts, slots, false);
  }
}

struct HitRates {
  double lru = 0, lfu = 0, ours = 0, best = 0;
  HitRates& operator+=(const HitRates& o) {
    lru += o.lru, lfu += o.lfu, ours += o.ours, best += o.best;
    return *this;
  }
};

HitRates rates_of(const test::ExpertTrace& trace, uint32_t slots) {
  const std::vector<uint32_t> layer_of = trace.layer_of();
  const PolicyShape shape{layer_of, slots};
  return {.lru = test::hit_rate(trace, ScoredPolicy(shape, {.half_life = 0, .admits_all = true})),
          .lfu = test::hit_rate(trace, ScoredPolicy(shape, {.half_life = 64, .admits_all = true})),
          .ours = test::hit_rate(trace, ExpertPolicy(shape)),
          .best = test::best_hit_rate(trace, slots)};
}

// Compares on each trace, with slots for an eighth, a quarter and half of the experts. Ours hits at
// most `less` less than the better of LRU and LFU with decay, and on average more than both.
void expect_more_hits(const std::vector<test::ExpertTrace>& traces, double less) {
  HitRates all;
  std::cout << fmt::format("{:<28}{:>6}{:>8}{:>8}{:>8}{:>8}\n", "trace", "slots", "LRU", "LFU",
                           "ours", "Belady");
  for (const test::ExpertTrace& trace : traces) {
    for (uint32_t share : {8u, 4u, 2u}) {
      const uint32_t slots = trace.layers * trace.experts / share;
      const HitRates r = rates_of(trace, slots);
      std::cout << fmt::format("{:<28}{:>6}{:>8.3f}{:>8.3f}{:>8.3f}{:>8.3f}\n", trace.name, slots,
                               r.lru, r.lfu, r.ours, r.best);
      EXPECT_LE(std::max({r.lru, r.lfu, r.ours}), r.best + 1e-9) << trace.name;
      EXPECT_GE(r.ours, std::max(r.lru, r.lfu) - less) << trace.name << ", " << slots << " slots";
      all += r;
    }
  }
  EXPECT_GT(all.ours, all.lru);
  EXPECT_GT(all.ours, all.lfu);
}

TEST(ExpertPolicy, HitsMoreThanSimplerOnesOnSyntheticTraces) {
  test::Random random(uint64_t{60});
  expect_more_hits(test::synthetic_traces(random), 0.01);
}

// These are of the small model that tools/train_demo_model.py --experts trains.
TEST(ExpertPolicy, HitsMoreThanSimplerOnesOnRecordedTraces) {
  const std::vector<test::ExpertTrace> traces =
      test::recorded_traces(test::source_dir() / "tests/data/experts/traces.txt");
  ASSERT_EQ(traces.size(), 6u);
  for (const test::ExpertTrace& trace : traces) {
    ASSERT_EQ(trace.layers, 6u) << trace.name;
    ASSERT_GE(trace.uses.size(), 6 * 200u) << trace.name;
  }
  expect_more_hits(traces, 0);
}

TEST(ReuseDistances, CountsTheExpertsUsedSinceTheLastUse) {
  test::Random random("reuse of experts");
  for (int round = 0; round < 50; ++round) {
    const auto experts = static_cast<uint32_t>(random.between(1, 150));
    ReuseDistances distances(experts, 0);
    ExpertReuse expected{.experts = experts};
    std::vector<uint32_t> all;
    for (int step = 0; step < 100; ++step) {
      std::vector<ExpertUse> uses;
      for (int64_t n = random.between(1, 4); n > 0; --n) {
        const auto e = static_cast<uint32_t>(random.between(0, experts - 1));
        uses.push_back({.expert = e, .is_hit = random.uniform() < 0.5});
        ++expected.uses;
        expected.hits += uses.back().is_hit;
        const auto last = std::find(all.rbegin(), all.rend(), e);
        const std::set<uint32_t> between(all.rbegin(), last);
        if (last != all.rend()) ++expected.again[between.size() * ExpertReuse::kParts / experts];
        all.push_back(e);
      }
      distances.use(uses);
    }
    ASSERT_EQ(distances.seen(), expected);
  }
}

// Predicts the hits of caches of other sizes from a run with slots for a quarter of the experts.
TEST(ExpertReuse, PredictsHitRatesOfOtherCaches) {
  const std::vector<test::ExpertTrace> traces =
      test::recorded_traces(test::source_dir() / "tests/data/experts/traces.txt");
  double worst = 0, sum = 0;
  for (const test::ExpertTrace& trace : traces) {
    const uint32_t experts = trace.layers * trace.experts;
    const std::vector<uint32_t> layer_of = trace.layer_of();
    ExpertPolicy policy({layer_of, experts / 4});
    ReuseDistances distances(experts, experts / 4);
    for (const std::vector<uint32_t>& step : trace.uses) {
      std::vector<ExpertUse> uses;
      for (uint32_t e : step) uses.push_back({.expert = e});
      policy.use(uses);
      distances.use(uses);
    }
    ASSERT_TRUE(distances.seen().is_known());
    for (uint32_t slots : {experts / 8, experts / 4, experts / 2, experts}) {
      const double is = test::hit_rate(trace, ExpertPolicy({layer_of, slots}));
      const double predicted = distances.seen().hit_rate(slots);
      std::cout << fmt::format("{:<28}{:>6}{:>8.3f}{:>8.3f}\n", trace.name, slots, is, predicted);
      worst = std::max(worst, std::abs(is - predicted));
      sum += std::abs(is - predicted);
    }
  }
  EXPECT_LT(worst, 0.1);
  EXPECT_LT(sum / static_cast<double>(4 * traces.size()), 0.03);
}

}  // namespace
}  // namespace sluice
