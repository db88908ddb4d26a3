#include "src/memory/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/base/error.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

TEST(Ledger, RefusesWhatDoesNotFitAndSaysWhoHoldsWhat) {
  Ledger ledger;
  ledger.set_budget(Place::host, 100);
  auto weights = ledger.try_lease(Place::host, Use::weights, "layer 0", 60);
  ASSERT_TRUE(weights);
  EXPECT_FALSE(ledger.try_lease(Place::host, Use::kv_cache, "kv", 41));
  EXPECT_FALSE(ledger.try_lease(Place::host, Use::kv_cache, "kv", UINT64_MAX));
  try {
    ledger.lease(Place::host, Use::kv_cache, "KV cache", 41);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::no_fit);
    EXPECT_NE(std::string(e.what()).find("KV cache needs 41 B"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("weights 60 B"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(ledger.try_lease(Place::device, Use::kv_cache, "elsewhere", 1000));
}

TEST(Ledger, MovedLeaseGivesBackOnce) {
  Ledger ledger;
  {
    Lease a = ledger.lease(Place::host, Use::weights, "a", 10);
    Lease b = std::move(a);
    a = ledger.lease(Place::host, Use::weights, "c", 5);
    b = std::move(a);
    EXPECT_EQ(ledger.used(Place::host), 5u);
  }
  EXPECT_EQ(ledger.used(Place::host), 0u);
  EXPECT_EQ(ledger.peak(Place::host), 15u);
}

// Against a plain model: sums, budget, peak, and who was alive at the peak.
TEST(Ledger, AgreesWithAPlainModelOverRandomLeases) {
  test::Random random("ledger");
  Ledger ledger;
  constexpr uint64_t kBudget = 1000;
  ledger.set_budget(Place::host, kBudget);
  std::vector<std::pair<std::string, Lease>> live;
  uint64_t used = 0;
  uint64_t peak = 0;
  std::map<std::string, uint64_t> now, at_peak;
  for (int i = 0; i < 3000; ++i) {
    if (!live.empty() && random.uniform() < 0.5) {
      auto victim = live.begin() + random.between(0, std::ssize(live) - 1);
      used -= victim->second.bytes();
      now[victim->first] -= victim->second.bytes();
      live.erase(victim);
    } else {
      auto bytes = static_cast<uint64_t>(random.between(0, 300));
      std::string owner = "owner " + std::to_string(random.between(0, 5));
      auto lease = ledger.try_lease(Place::host, Use::weights, owner, bytes);
      EXPECT_EQ(lease.has_value(), used + bytes <= kBudget);
      if (!lease) continue;
      live.emplace_back(owner, std::move(*lease));
      used += bytes;
      now[owner] += bytes;
    }
    if (used > peak) {
      peak = used;
      at_peak = now;
    }
    ASSERT_EQ(ledger.used(Place::host), used);
    ASSERT_EQ(ledger.peak(Place::host), peak);
  }
  std::map<std::string, uint64_t> holders;
  for (const auto& a : ledger.holders_at_peak(Place::host)) holders[a.owner] = a.bytes;
  std::erase_if(at_peak, [](const auto& entry) { return entry.second == 0; });
  EXPECT_EQ(holders, at_peak);
}

}  // namespace
}  // namespace sluice
