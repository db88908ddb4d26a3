#include "src/memory/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

struct Timeline {
  std::vector<Ledger::Account> accounts;
  std::vector<Ledger::Phase> phases;
  std::vector<Ledger::Event> events;
};

// Leases of a few accounts that come and go, in a few phases.
Timeline random_timeline(test::Random& random) {
  Timeline t;
  for (int64_t i = random.between(1, 12); i > 0; --i) {
    auto place = static_cast<Place>(random.between(0, kPlaces - 1));
    auto use = static_cast<Use>(random.between(0, kUses - 1));
    t.accounts.push_back({place, use, "owner", 0});
  }
  double now = 0;
  for (int64_t i = random.between(1, 2000); i > 0; --i) {
    if (random.between(0, 2) > 0) now += random.uniform();
    if (random.between(0, 300) == 0) t.phases.push_back({now, "phase"});
    auto account = static_cast<uint32_t>(random.between(0, std::ssize(t.accounts) - 1));
    auto held = static_cast<int64_t>(t.accounts[account].bytes);
    int64_t delta =
        held > 0 && random.between(0, 1) == 0 ? -random.between(1, held) : random.between(1, 1000);
    t.accounts[account].bytes += static_cast<uint64_t>(delta);
    t.events.push_back({now, account, delta});
  }
  return t;
}

using State = std::vector<int64_t>;  // bytes of each account

// kUses: of all uses.
int64_t sum(const Timeline& t, const State& state, size_t place, size_t use) {
  int64_t bytes = 0;
  for (size_t a = 0; a < state.size(); ++a) {
    const Ledger::Account& account = t.accounts[a];
    bool counts = use == kUses || static_cast<size_t>(account.use) == use;
    if (static_cast<size_t>(account.place) == place && counts) bytes += state[a];
  }
  return bytes;
}

// The largest sum for each phase, place and use (kUses: all together), as the phase before or an
// event left it.
using Peaks = std::map<std::tuple<size_t, size_t, size_t>, int64_t>;
Peaks peaks_of(const Timeline& t) {
  Peaks peaks;
  State state(t.accounts.size());
  size_t phase = 0;
  auto see = [&] {
    for (size_t place = 0; place < kPlaces; ++place) {
      for (size_t use = 0; use <= kUses; ++use) {
        int64_t& peak = peaks[{phase, place, use}];
        peak = std::max(peak, sum(t, state, place, use));
      }
    }
  };
  for (const Ledger::Event& e : t.events) {
    for (; phase < t.phases.size() && t.phases[phase].seconds <= e.seconds; see()) ++phase;
    state[e.account] += e.delta;
    see();
  }
  std::erase_if(peaks, [](const auto& p) { return p.second == 0; });
  return peaks;
}

// Returns each account's bytes after the last event at each time.
std::map<double, State> states_of(const Timeline& t) {
  std::map<double, State> states;
  State state(t.accounts.size());
  for (const Ledger::Event& e : t.events) {
    state[e.account] += e.delta;
    EXPECT_GE(state[e.account], 0);
    states[e.seconds] = state;
  }
  return states;
}

TEST(Timeline, ThinnedKeepsPeaksOfPhasesAndStatesOfTimes) {
  test::Random random("timeline");
  for (int round = 0; round < 200; ++round) {
    if (test::leaves_out(random)) continue;
    Timeline before = random_timeline(random);
    Timeline after = before;
    auto parts = static_cast<size_t>(random.between(1, 40));
    for (int64_t i = random.between(1, 3); i > 0; --i)  // a long run does so again and again
      thin_timeline(after.events, after.accounts, after.phases, parts);
    EXPECT_LE(after.events.size(), before.events.size());
    EXPECT_EQ(peaks_of(after), peaks_of(before));
    ASSERT_TRUE(std::ranges::is_sorted(after.events, {}, &Ledger::Event::seconds));
    std::map<double, State> then = states_of(before), now = states_of(after);
    ASSERT_EQ(now.empty() ? State(before.accounts.size()) : now.rbegin()->second,
              then.rbegin()->second);
    // A state may be that before the last of several events with one time.
    std::map<double, int64_t> at;
    for (const Ledger::Event& e : before.events) ++at[e.seconds];
    for (const auto& [seconds, state] : now) {
      if (at[seconds] == 1) {
        EXPECT_EQ(state, then[seconds]) << seconds;
      }
    }
  }
}

TEST(Timeline, HasAtMostSoManyStates) {
  Timeline t;
  t.accounts = {{Place::host, Use::kv_cache, "a", 0}, {Place::host, Use::swap, "b", 0}};
  t.phases = {{0, "load"}, {500, "run"}};
  for (int i = 0; i < 100000; ++i)
    t.events.push_back({i * 1e-2, static_cast<uint32_t>(i / 2 % 2), i % 2 == 0 ? 7 : -7});
  thin_timeline(t.events, t.accounts, t.phases, 10);
  // Each of the 20 parts keeps the last state and the highest, each phase two more, of two
  // accounts.
  EXPECT_LE(t.events.size(), (20u * 2 + 2 * 2) * 2);
  EXPECT_GE(t.events.size(), 20u);
}

TEST(Timeline, OfALedgerIsBoundedAndItsPeaksAreExact) {
  Ledger ledger;
  ledger.begin_phase("load");
  std::vector<Lease> weights;
  for (int i = 0; i < 300; ++i)
    weights.push_back(ledger.lease(Place::host, Use::weights, std::to_string(i), 1000));
  ledger.begin_phase("run");
  for (int i = 0; i < 200000; ++i) {
    Lease of_a_step = ledger.lease(Place::host, Use::swap, "a step", i == 123456 ? 500 : 100);
    if (i % 10000 == 0) {
      ASSERT_LE(ledger.events().size(), Ledger::kMostEvents);
    }
  }
  EXPECT_EQ(ledger.peak(Place::host), 300500u);
  std::vector<Ledger::Account> holders = ledger.holders_at_peak(Place::host);
  ASSERT_EQ(holders.size(), 301u);
  EXPECT_EQ(holders.back().bytes, 500u);
  int64_t held = 0, peak = 0;
  std::vector<Ledger::Event> events = ledger.events();
  EXPECT_LE(events.size(), Ledger::kMostEvents);
  for (const Ledger::Event& e : events) peak = std::max(peak, held += e.delta);
  EXPECT_EQ(held, 300000);
  EXPECT_EQ(peak, 300500);
}

TEST(Timeline, OfALedgerIsBoundedHoweverManyPhasesBegin) {
  Ledger ledger;
  for (int i = 0; i < 20000; ++i) {
    ledger.begin_phase(i == 0 ? "first" : "load");
    const Lease staging = ledger.lease(Place::host, Use::staging, "ring", 10);
    const Lease weights = ledger.lease(Place::host, Use::weights, "unit", 100);
  }
  const std::vector<Ledger::Phase> phases = ledger.phases();
  ASSERT_EQ(phases.size(), Ledger::kMostPhases);
  EXPECT_EQ(phases.front().name, "first");
  EXPECT_TRUE(std::ranges::is_sorted(phases, {}, &Ledger::Phase::seconds));
  EXPECT_LE(ledger.events().size(), Ledger::kMostEvents);
}

// Every account has something of its own to say, so there is nothing to merge: it takes its time.
TEST(Timeline, OfManyAccountsTakesLinearTime) {
  Ledger ledger;
  std::vector<Lease> leases;
  constexpr size_t kOwners = 200000;
  for (size_t i = 0; i < kOwners; ++i)
    leases.push_back(ledger.lease(Place::host, Use::weights, "layer " + std::to_string(i), 1));
  EXPECT_EQ(ledger.events().size(), kOwners);
  EXPECT_EQ(ledger.holders_at_peak(Place::host).size(), kOwners);
}

}  // namespace
}  // namespace sluice
