// The choice of how ranks divide a model, for what their memories and links are.
#include "src/plan/rank_division.h"

#include <gtest/gtest.h>

#include "src/base/units.h"

namespace sluice {
namespace {

constexpr RankLink kMemory{.bytes_per_second = 5e9, .latency = 5e-6};
constexpr RankLink kEthernet{.bytes_per_second = 120e6, .latency = 200e-6};

// A model of 16 GB in BF16.
RankWork work() {
  return {.weights = 16 * GiB,
          .kv_cache = GiB,
          .whole = GiB / 2,
          .layers = 32,
          .row_bytes = 16384,
          .logits_bytes = 512 * KiB};
}

RankDivision chosen(const RankWork& work, std::vector<uint64_t> memories, const RankLink& link) {
  return rank_divisions(work, memories, link, {}).front();
}

TEST(RankDivision, FastLinksDivideLayersAndSlowOnesGiveEachSome) {
  const std::vector<uint64_t> memories(4, 32 * GiB);
  EXPECT_EQ(chosen(work(), memories, kMemory).tensor_parallel_size, 4);
  RankWork small = work();
  small.weights = GiB / 4;
  const RankLink slow{.bytes_per_second = 12e6, .latency = 2e-3};
  EXPECT_EQ(chosen(small, memories, slow).pipeline_parallel_size, 4);
  for (const RankDivision& d : rank_divisions(work(), memories, kEthernet, {}))
    EXPECT_EQ(d.tensor_parallel_size * d.pipeline_parallel_size, 4);
}

// Ranks of one stage have equal parts, so that the smallest memory counts; stages have layers by
// their memory, and then nothing is read from disk.
TEST(RankDivision, UnequalMemoriesAreFilledByStages) {
  const std::vector<uint64_t> memories{20 * GiB, 4 * GiB};
  const RankDivision best = chosen(work(), memories, kEthernet);
  EXPECT_EQ(best.pipeline_parallel_size, 2);
  EXPECT_EQ(best.disk, 0);
  const std::vector<RankDivision> all = rank_divisions(work(), memories, kEthernet, {});
  EXPECT_GT(all.back().disk, 1);
  EXPECT_NE(why_fastest(all).find("for the disk"), std::string::npos) << why_fastest(all);
}

TEST(RankDivision, IsNeverOneThatTheModelRefuses) {
  RankWork odd = work();
  odd.refusal = [](int ranks) { return std::string(ranks == 3 ? "no" : ""); };
  const std::vector<uint64_t> memories(3, 32 * GiB);
  const std::vector<RankDivision> all = rank_divisions(odd, memories, kMemory, {});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all.front().pipeline_parallel_size, 3);
  EXPECT_EQ(all.back().refusal, "no");
  odd.layers = 2;
  EXPECT_FALSE(chosen(odd, memories, kMemory).refusal.empty());
  odd.layers = 32;
  odd.whole = 64 * GiB;
  EXPECT_FALSE(chosen(odd, memories, kMemory).refusal.empty());
}

}  // namespace
}  // namespace sluice
