#include "src/kv/block_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "tests/support/fake_kv.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

struct Held {
  Held(Sequence s, Ids i, uint64_t r) : sequence(std::move(s)), ids(std::move(i)), root(r) {}
  Sequence sequence;
  Ids ids;
  uint64_t root;
  int64_t longest = 0;  // that it has had blocks for
  bool suspended = false;
};

// Random sequences over few tokens, so that prefixes are often known; forked, grown, suspended,
// taken up again and given up.
class RandomSequences {
 public:
  explicit RandomSequences(const BlockOptions& options)
      : size_(options.block_size), blocks_(options), kv_(options) {
    for (const KvGroup& g : options.groups) size_ = std::max(size_, g.block_size);
  }

  void operate(test::Random& random) {
    double choice = random.uniform();
    if (held_.empty() || (choice < 0.2 && held_.size() < 8)) return begin(random);
    auto who = static_cast<size_t>(random.between(0, std::ssize(held_) - 1));
    Held& h = *held_[who];
    if (choice < 0.3) {
      held_.erase(held_.begin() + static_cast<long>(who));
    } else if (h.suspended) {
      h.suspended = !adopt(h);
    } else if (choice < 0.4 && held_.size() < 8) {
      held_.push_back(std::make_unique<Held>(h.sequence.fork(), h.ids, h.root));
      held_.back()->longest = h.longest;
    } else if (choice < 0.5) {
      h.sequence.suspend();
      h.suspended = true;
    } else {
      grow(h, random);
    }
  }

  void expect_consistent() {
    std::map<int32_t, int32_t> uses;
    for (const auto& h : held_) {
      kv_.expect(blocks_, h->sequence, h->ids, h->root);
      for (size_t g = 0; g < blocks_.groups(); ++g)
        for (int32_t b : h->sequence.table().blocks(g))
          if (b >= 0) ++uses[b];
    }
    for (auto [block, count] : uses) ASSERT_EQ(blocks_.uses(block), count);
    ASSERT_EQ(blocks_.free_blocks() + std::ssize(uses), blocks_.size());
  }

  void clear() { held_.clear(); }
  const BlockManager& blocks() const { return blocks_; }
  int64_t adopted() const { return adopted_; }
  int64_t copied() const { return copied_; }
  int64_t rewound() const { return rewound_; }

 private:
  void begin(test::Random& random) {
    Ids ids(static_cast<size_t>(random.between(1, 5 * size_)));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.uniform() < 0.9);
    auto root = static_cast<uint64_t>(random.between(0, 1));
    auto h = std::make_unique<Held>(Sequence(blocks_, root), ids, root);
    h->suspended = !adopt(*h);
    held_.push_back(std::move(h));
  }

  bool adopt(Held& h) {
    PrefixMatch known = h.sequence.match(std::span(h.ids).first(h.ids.size() - 1));
    int64_t free = blocks_.free_blocks();
    int64_t most = blocks_.most_blocks(std::ssize(h.ids), 1);
    if (most - known.in_use > free) return false;
    std::vector<BlockCopy> copies;
    h.sequence.adopt(known, copies);
    kv_.copy(copies);
    EXPECT_LE(free - blocks_.free_blocks(), most - known.in_use);
    adopted_ += h.sequence.length();
    h.longest = std::max(h.longest, h.sequence.length());
    h.ids.resize(static_cast<size_t>(std::max<int64_t>(h.sequence.length(), 1)));
    return true;
  }

  void grow(Held& h, test::Random& random) {
    int64_t first = h.sequence.length();
    int64_t rows = std::min(random.between(1, 2 * size_), blocks_.rows_to_snapshot(first));
    std::vector<BlockCopy> copies;
    const bool rewindable = random.uniform() < 0.3;
    int64_t missing = h.sequence.table().missing(first, first + rows, rewindable);
    int64_t free = blocks_.free_blocks();
    bool room = h.sequence.table().reserve(first, first + rows, copies, rewindable);
    ASSERT_EQ(room, missing <= free);
    kv_.copy(copies);
    copied_ += std::ssize(copies);
    h.longest = std::max(h.longest, first + rows);
    if (!room) return h.sequence.truncate(first);
    ASSERT_EQ(blocks_.free_blocks(), free - missing);
    ASSERT_LE(h.sequence.table().blocks_held(), blocks_.most_blocks(h.longest, 2 * size_));
    while (std::ssize(h.ids) < first + rows)
      h.ids.push_back(static_cast<int32_t>(random.uniform() < 0.9));
    kv_.store(blocks_, h.sequence, h.ids, rows, h.root);
    const int64_t wanted =
        random.uniform() < 0.2 ? random.between(first, first + rows) : first + rows;
    h.sequence.truncate(wanted);
    if (wanted == first + rows || !blocks_.has_states()) {
      ASSERT_EQ(h.sequence.length(), wanted);
    } else {  // a state goes back to where it was kept, or to nothing
      ASSERT_EQ(h.sequence.length(), rewindable ? first : 0);
      ++rewound_;
    }
    h.ids.resize(static_cast<size_t>(h.sequence.length()));
    if (h.ids.empty()) h.ids.push_back(0);
    h.sequence.table().remember(std::span(h.ids).first(static_cast<size_t>(h.sequence.length())));
  }

  int64_t size_;
  BlockManager blocks_;
  test::FakeKv kv_;
  std::vector<std::unique_ptr<Held>> held_;
  int64_t adopted_ = 0;
  int64_t copied_ = 0;
  int64_t rewound_ = 0;
};

BlockOptions grouped(std::array<int64_t, kTiers> blocks, std::vector<KvGroup> groups,
                     int64_t block_size = 4) {
  return {.block_size = block_size,
          .groups = std::move(groups),
          .blocks = blocks,
          .costs = {1, {0, 0.01, 0.02}, {0, 0.01, 0.02}},
          .snapshot_tokens = 4 * block_size};
}
BlockOptions options(std::array<int64_t, kTiers> blocks, const std::vector<int64_t>& windows = {0},
                     int64_t block_size = 4) {
  std::vector<KvGroup> groups;
  for (int64_t window : windows) groups.push_back({KvKind::tokens, block_size, window, 0});
  return grouped(blocks, std::move(groups), block_size);
}

constexpr KvGroup kAll{KvKind::tokens, 4, 0, 0}, kTwice{KvKind::latent, 8, 0, 0},
    kWindowOfTwice{KvKind::tokens, 8, 6, 0}, kChunks{KvKind::tokens, 4, 0, 10},
    kWindowInChunks{KvKind::tokens, 16, 7, 24}, kState{KvKind::state, 4, 0, 0};

struct Case {
  const char* name;
  BlockOptions options;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class BlockManagerTest : public testing::TestWithParam<Case> {};

TEST_P(BlockManagerTest, RandomSequencesFindTheirOwnTokensAndLeakNoBlock) {
  test::Random random(GetParam().name);
  const BlockOptions& o = GetParam().options;
  RandomSequences sequences(o);
  for (int i = 0; i < 30000; ++i) {
    sequences.operate(random);
    if (i % 20 == 0) sequences.expect_consistent();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  EXPECT_GT(sequences.adopted(), 1000);
  EXPECT_GT(sequences.copied(), 100);
  BlockStats stats = sequences.blocks().stats();
  EXPECT_EQ(stats.restored > 100, o.blocks[1] + o.blocks[2] > 0);
  EXPECT_LE(stats.restored > 0, stats.stored > 0);
  EXPECT_EQ(sequences.rewound() > 100, sequences.blocks().has_states());
  sequences.clear();
  EXPECT_TRUE(sequences.blocks().idle());
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, BlockManagerTest,
    testing::Values(
        Case{"device", options({60, 0, 0})}, Case{"host", options({40, 30, 0})},
        Case{"disk", options({40, 0, 50})}, Case{"host_and_disk", options({40, 6, 60})},
        Case{"windows", options({60, 0, 0}, {7})}, Case{"two_groups", options({90, 0, 0}, {0, 6})},
        Case{"three_groups_and_tiers", options({100, 20, 50}, {0, 5, 11})},
        Case{"chunks", grouped({60, 0, 0}, {kChunks})},
        Case{"sizes", grouped({90, 0, 0}, {kAll, kTwice})},
        Case{"sizes_and_tiers", grouped({110, 20, 50}, {kTwice, kChunks, kWindowOfTwice, kAll})},
        Case{"states", grouped({60, 0, 0}, {kAll, kState})},
        Case{"states_alone", grouped({40, 0, 0}, {kState, kState})},
        Case{"states_and_tiers", grouped({80, 20, 50}, {kState, kAll, kState})},
        Case{"all_kinds",
             grouped({170, 30, 60}, {kAll, kWindowInChunks, kTwice, kChunks, kState, kState})}),
    [](const auto& p) { return std::string(p.param.name); });

// A sequence that held `ids`, and is gone.
void hold(BlockManager& blocks, const Ids& ids, std::vector<BlockCopy>* copies = nullptr) {
  std::vector<BlockCopy> own;
  Sequence s(blocks);
  EXPECT_TRUE(s.table().reserve(0, std::ssize(ids), copies != nullptr ? *copies : own));
  s.grow(std::ssize(ids));
  s.table().remember(ids);
}

int64_t known(BlockManager& blocks, const Ids& ids) {
  return std::ssize(blocks.match(0, ids).prefixes);
}

TEST(BlockManager, ThePrefixThatWasUsedLongestAgoGoesFirst) {
  BlockManager blocks(options({3, 0, 0}, {0}, 2));
  EXPECT_EQ(blocks.kept_blocks(), 0);
  hold(blocks, {1, 1});
  hold(blocks, {2, 2});
  hold(blocks, {3, 3});
  EXPECT_EQ(blocks.free_blocks(), 3);
  EXPECT_EQ(blocks.kept_blocks(), 3);
  hold(blocks, {1, 1});  // takes {1, 1}'s block: it is not asked for here, and is the oldest
  EXPECT_EQ(known(blocks, {1, 1}), 1);
  hold(blocks, {4, 4});
  EXPECT_EQ(known(blocks, {2, 2}), 0);
  EXPECT_EQ(known(blocks, {3, 3}), 1);
  EXPECT_EQ(known(blocks, {4, 4}), 1);
}

TEST(BlockManager, TheEndOfAPrefixGoesBeforeItsBeginning) {
  BlockManager blocks(options({3, 0, 0}, {0}, 2));
  hold(blocks, {1, 2, 3, 4, 5, 6});
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(blocks.take(copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(known(blocks, {1, 2, 3, 4, 5, 6}), 2);
}

TEST(BlockManager, WhatIsTakenGoesToTheNextTierAndFromThereToTheLast) {
  BlockManager blocks(options({1, 1, 1}, {0}, 2));
  std::vector<BlockCopy> copies;
  BlockPlace device{Tier::device, 0}, host{Tier::host, 0}, disk{Tier::disk, 0};
  auto expect = [&](std::vector<std::pair<BlockPlace, BlockPlace>> want) {
    ASSERT_EQ(copies.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(copies[i].from == want[i].first && copies[i].to == want[i].second) << i;
    copies.clear();
  };
  hold(blocks, {1, 1}, &copies);
  expect({});
  hold(blocks, {2, 2}, &copies);
  expect({{device, host}});
  hold(blocks, {3, 3}, &copies);
  expect({{host, disk}, {device, host}});
  for (Ids ids : {Ids{1, 1}, Ids{2, 2}, Ids{3, 3}}) EXPECT_EQ(known(blocks, ids), 1);
  Sequence back(blocks);
  PrefixMatch first = back.match(Ids{1, 1});
  EXPECT_EQ(first.in_use, 0);
  // {3, 3} has to leave the device for it, {2, 2} the host for that; the disk has no room for more.
  back.adopt(first, copies);
  expect({{device, host}, {disk, device}});
  EXPECT_EQ(back.length(), 2);
  EXPECT_EQ(known(blocks, {2, 2}), 0);
}

TEST(BlockManager, WhatIsWantedStaysAndTheRestMakesRoom) {
  BlockManager blocks(options({2, 2, 0}, {0}, 2));
  std::vector<BlockCopy> copies;
  Sequence waits(blocks);
  Ids ids{1, 1, 1, 1, 9};
  ASSERT_TRUE(waits.table().reserve(0, 4, copies));
  waits.grow(4);
  waits.table().remember(std::span(ids).first(4));
  waits.suspend();
  for (int32_t other = 2; other < 10; ++other) hold(blocks, {other, other, other, other});
  EXPECT_EQ(known(blocks, ids), 2);
  EXPECT_EQ(known(blocks, {8, 8, 8, 8}), 0);
  EXPECT_FALSE(blocks.idle());
  EXPECT_EQ(blocks.stats().lost, 0);
  waits.release();
  EXPECT_TRUE(blocks.idle());
}

TEST(BlockManager, BlocksThatAreCheaperToComputeAreNotKept) {
  BlockOptions o = options({1, 4, 4}, {0}, 2);
  o.costs = {1, {0, 0.8, 0.3}, {0, 0.3, 0.3}};  // host: 1.1 of 1; disk: 0.6
  BlockManager blocks(o);
  std::vector<BlockCopy> copies;
  hold(blocks, {1, 1});
  hold(blocks, {2, 2}, &copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].to.tier, Tier::disk);
}

// A state is kept where it was planned, and goes on from there.
TEST(BlockManager, AStateIsFoundWhereItWasKept) {
  BlockManager blocks(grouped({12, 0, 0}, {kAll, kState}));
  Ids ids(40, 1);
  std::vector<BlockCopy> copies;
  Sequence s(blocks);
  auto grow = [&](Sequence& sequence, int64_t rows) {
    int64_t first = sequence.length();
    ASSERT_LE(rows, blocks.rows_to_snapshot(first));
    ASSERT_TRUE(sequence.table().reserve(first, first + rows, copies));
    sequence.grow(rows);
    sequence.table().remember(std::span(ids).first(static_cast<size_t>(sequence.length())));
  };
  auto known_of = [&](size_t tokens) {
    return known(blocks, Ids(ids.begin(), ids.begin() + static_cast<long>(tokens)));
  };
  grow(s, 10);
  EXPECT_EQ(known_of(40), 0);  // there are blocks of tokens, but no state
  grow(s, 2);
  EXPECT_EQ(known_of(40), 3);
  EXPECT_TRUE(copies.empty());
  grow(s, 4);
  const int32_t kept = s.table().blocks(1).front();
  EXPECT_TRUE(blocks.holds(kept));
  EXPECT_EQ(known_of(40), 4);
  EXPECT_EQ(known_of(15), 0);  // the one before has made room
  copies.clear();
  grow(s, 8);
  ASSERT_EQ(copies.size(), 1u);  // the state moved on, and left what was kept
  EXPECT_EQ(copies[0].from, (BlockPlace{Tier::device, kept}));
  EXPECT_EQ(known_of(40), 6);
  EXPECT_EQ(known_of(23), 4);  // that one was planned
  Sequence other(blocks);
  other.adopt(other.match(std::span(ids).first(23)), copies);
  EXPECT_EQ(other.length(), 16);
  EXPECT_EQ(other.table().blocks(1).front(), kept);
  // A step that may be taken back keeps both states.
  copies.clear();
  ASSERT_TRUE(s.table().reserve(24, 27, copies, true));
  ASSERT_EQ(copies.size(), 1u);
  s.grow(3);
  s.truncate(26);
  EXPECT_EQ(s.length(), 24);
  EXPECT_EQ(s.table().blocks(1).front(), copies[0].from.block);
  s.truncate(23);  // it was kept nowhere near
  EXPECT_EQ(s.length(), 0);
  EXPECT_EQ(s.table().blocks_held(), 0);
}

// One sequence that grows by guesses, and is truncated to where it began to guess, between, or far
// before: it goes on from there, or from where it can, and never without a block that it needs.
TEST(BlockManager, ASequenceGoesBackToAnyLength) {
  test::Random random("rewinds");
  int64_t in_place = 0, to_nothing = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<KvGroup> groups;
    for (const KvGroup& g : {kAll, kTwice, kWindowOfTwice, kChunks, kWindowInChunks, kState})
      if (random.uniform() < (g.kind == KvKind::state ? 0.2 : 0.5)) groups.push_back(g);
    if (groups.empty()) groups.push_back(kWindowOfTwice);
    const BlockOptions o = grouped({200, 0, 0}, groups);
    BlockManager blocks(o);
    test::FakeKv kv(o);
    Sequence s(blocks);
    Ids ids;
    int64_t kept = -1;  // where it began to guess
    for (int i = 0; i < 30; ++i) {
      const int64_t length = s.length(), rows = random.between(1, 12);
      if (random.uniform() < 0.6) {
        const bool guesses = kept >= 0 || random.uniform() < 0.5;
        if (guesses && kept < 0) kept = length;
        while (std::ssize(ids) < length + rows)
          ids.push_back(static_cast<int32_t>(random.between(0, 9)));
        std::vector<BlockCopy> copies;
        const int64_t missing = s.table().missing(length, length + rows, guesses);
        const int64_t free = blocks.free_blocks();
        ASSERT_TRUE(s.table().reserve(length, length + rows, copies, guesses));
        ASSERT_EQ(blocks.free_blocks(), free - missing);
        kv.copy(copies);
        kv.store(blocks, s, ids, rows);
      } else {
        const int64_t wanted =
            random.between(random.uniform() < 0.5 && kept >= 0 ? kept : 0, length);
        s.truncate(wanted);
        ASSERT_TRUE(s.length() == 0 || s.length() == wanted || s.length() == kept);
        if (kept >= 0 && wanted >= kept) {
          const int64_t least = blocks.has_states() && wanted < length ? kept : wanted;
          ASSERT_EQ(s.length(), least);
          in_place += least < length;
        }
        to_nothing += s.length() == 0 && wanted > 0;
        ids.resize(static_cast<size_t>(s.length()));
        kept = -1;
      }
      kv.expect(blocks, s, ids);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
  }
  EXPECT_GT(in_place, 100);
  EXPECT_GT(to_nothing, 100);
}

}  // namespace
}  // namespace sluice
