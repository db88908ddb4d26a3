// Ranks that load together: each of them may fail, or begin again, at any moment.
#include "src/load/exchange.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/support/thread_group.h"

namespace sluice {
namespace {

void on_ranks(int size, const std::function<void(LoadingRanks&, int)>& work) {
  test::Meeting meeting(size);
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const test::ThreadGroup group({r, size}, meeting);
      LoadingRanks ranks(group);
      work(ranks, r);
    });
  }
}

TEST(LoadingRanks, ExchangeOnlyIfAllExchangeTheSame) {
  on_ranks(3, [](LoadingRanks& ranks, int r) {
    EXPECT_TRUE(ranks.begin({7, 1}));
    EXPECT_TRUE(ranks.sweeps_are_alike());
    EXPECT_TRUE(ranks.meet());
    EXPECT_TRUE(ranks.end(true));
    EXPECT_FALSE(ranks.begin({r == 2 ? 8U : 7U, 1}));
    EXPECT_FALSE(ranks.end(false));
    EXPECT_TRUE(ranks.begin({7, r == 2 ? 1U : 2U}));
    EXPECT_FALSE(ranks.sweeps_are_alike());
    EXPECT_TRUE(ranks.end(true));
  });
}

// The others are before an exchange, or at the end.
TEST(LoadingRanks, BeginAgainTogether) {
  for (const bool at_end : {false, true}) {
    on_ranks(3, [&](LoadingRanks& ranks, int r) {
      EXPECT_TRUE(ranks.begin({1}));
      if (r == 1) {
        EXPECT_FALSE(ranks.end(false));
      } else if (at_end) {
        EXPECT_FALSE(ranks.end(true));
      } else {
        EXPECT_FALSE(ranks.meet());
        EXPECT_FALSE(ranks.end(false));  // without another meeting
      }
      EXPECT_TRUE(ranks.begin({1}));
      EXPECT_TRUE(ranks.end(true));
    });
  }
}

TEST(LoadingRanks, FailTogether) {
  for (const int where : {0, 1, 2}) {
    on_ranks(3, [&](LoadingRanks& ranks, int r) {
      if (where == 0) {
        if (r == 1) return;  // and tells it
        EXPECT_THROW(static_cast<void>(ranks.begin({1})), OtherRankFailed);
        return;
      }
      EXPECT_TRUE(ranks.begin({1}));
      if (r == 1) return;
      if (where == 1) {
        EXPECT_THROW(static_cast<void>(ranks.meet()), OtherRankFailed);
      } else {
        EXPECT_THROW(static_cast<void>(ranks.end(true)), OtherRankFailed);
      }
    });
  }
}

}  // namespace
}  // namespace sluice
