// The policy of the cache of experts: its rules on random choices, and its hit rates on traces.
#include "src/load/expert_policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <vector>

#include "tests/load/expert_traces.h"
#include "tests/support/random.h"

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

// On each trace it is about as good as the better of LRU and LFU with decay, on average better than
// both; nothing is better than Belady's optimum.
TEST(ExpertPolicy, HitsMoreThanSimplerOnesOnTraces) {
  test::Random random(uint64_t{60});
  double all_ours = 0, all_lru = 0, all_lfu = 0;
  std::cout << fmt::format("{:<28}{:>6}{:>8}{:>8}{:>8}{:>8}\n", "trace", "slots", "LRU", "LFU",
                           "ours", "Belady");
  for (const test::ExpertTrace& trace : test::synthetic_traces(random)) {
    const std::vector<uint32_t> layer_of = trace.layer_of();
    for (uint32_t slots : {24u, 48u, 96u}) {
      const PolicyShape shape{layer_of, slots};
      const double lru =
          test::hit_rate(trace, ScoredPolicy(shape, {.half_life = 0, .admits_all = true}));
      const double lfu =
          test::hit_rate(trace, ScoredPolicy(shape, {.half_life = 64, .admits_all = true}));
      const double ours = test::hit_rate(trace, ExpertPolicy(shape));
      const double best = test::best_hit_rate(trace, slots);
      std::cout << fmt::format("{:<28}{:>6}{:>8.3f}{:>8.3f}{:>8.3f}{:>8.3f}\n", trace.name, slots,
                               lru, lfu, ours, best);
      EXPECT_LE(std::max({lru, lfu, ours}), best + 1e-9) << trace.name;
      EXPECT_GE(ours, std::max(lru, lfu) - 0.02) << trace.name << ", " << slots << " slots";
      all_ours += ours;
      all_lru += lru;
      all_lfu += lfu;
    }
  }
  EXPECT_GT(all_ours, all_lru);
  EXPECT_GT(all_ours, all_lfu);
}

}  // namespace
}  // namespace sluice
