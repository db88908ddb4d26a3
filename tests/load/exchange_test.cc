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

// A group of which the other rank does not come.
class Deserted final : public Group {
 public:
  Rank rank() const override { return {0, 2}; }
  std::span<const std::byte> all_gather(std::span<const std::byte>) const override {
    ++waits;
    break_off();
    fail(ErrorKind::runtime, "rank 1: not where the others have waited");
  }
  void all_to_all(std::span<const std::span<const std::byte>>,
                  std::span<const std::span<std::byte>>) const override {}
  void send(int, std::span<const std::byte>) const override {}
  void receive(int, std::span<std::byte>) const override {}
  void tell(std::span<const std::byte>) const override {}
  void hear(std::vector<std::byte>&, const std::stop_token&) const override {}
  mutable int waits = 0;
};

TEST(LoadingRanks, WaitOnceForARankThatDoesNotCome) {
  const Deserted other_hangs, own_fails;
  {
    LoadingRanks ranks(other_hangs);
    EXPECT_THROW(static_cast<void>(ranks.begin({1})), Error);
  }
  EXPECT_EQ(other_hangs.waits, 1);
  {
    const LoadingRanks ranks(own_fails);  // ends as its load has an error, which is told
  }
  EXPECT_EQ(own_fails.waits, 1);
}

}  // namespace
}  // namespace sluice
