#include "src/kv/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
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
};

// Random sequences over few tokens, so that prefixes are often known; forked, grown and given up.
class RandomSequences {
 public:
  RandomSequences(int64_t blocks, int64_t block_size)
      : size_(block_size), pool_(blocks), kv_(blocks, block_size) {}

  void operate(test::Random& random) {
    double choice = random.uniform();
    if (held_.empty() || (choice < 0.25 && held_.size() < 8)) return begin(random);
    auto who = static_cast<size_t>(random.between(0, std::ssize(held_) - 1));
    if (choice < 0.35) {
      held_.erase(held_.begin() + static_cast<long>(who));
    } else if (choice < 0.45 && held_.size() < 8) {
      Held& h = *held_[who];
      held_.push_back(std::make_unique<Held>(h.sequence.fork(), h.ids, h.root));
    } else {
      grow(*held_[who], random);
    }
  }

  void expect_consistent() {
    std::map<int32_t, int32_t> uses;
    for (const auto& h : held_) {
      kv_.expect(h->sequence, h->ids, h->root);
      for (int32_t b : h->sequence.table().blocks()) ++uses[b];
    }
    for (auto [block, count] : uses) ASSERT_EQ(pool_.uses(block), count);
    ASSERT_EQ(pool_.free_blocks() + std::ssize(uses), pool_.size());
  }

  void clear() { held_.clear(); }
  const BlockPool& pool() const { return pool_; }
  int64_t adopted() const { return adopted_; }
  int64_t copied() const { return copied_; }

 private:
  void begin(test::Random& random) {
    Ids ids(static_cast<size_t>(random.between(1, 5 * size_)));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.uniform() < 0.9);
    auto root = static_cast<uint64_t>(random.between(0, 1));
    auto h = std::make_unique<Held>(Sequence(pool_, size_, root), ids, root);
    h->sequence.adopt_prefix(h->ids);
    adopted_ += h->sequence.length();
    held_.push_back(std::move(h));
  }

  void grow(Held& h, test::Random& random) {
    int64_t first = h.sequence.length();
    int64_t rows = random.between(1, 2 * size_);
    std::vector<BlockCopy> copies;
    int64_t missing = h.sequence.table().missing(first, first + rows);
    int64_t free = pool_.free_blocks();
    bool room = h.sequence.table().reserve(first, first + rows, copies);
    ASSERT_EQ(room, missing <= free);
    kv_.copy(copies);
    copied_ += std::ssize(copies);
    if (!room) return;
    ASSERT_EQ(pool_.free_blocks(), free - missing);
    while (std::ssize(h.ids) < first + rows)
      h.ids.push_back(static_cast<int32_t>(random.uniform() < 0.9));
    kv_.store(h.sequence, h.ids, rows, h.root);
    if (random.uniform() < 0.2) h.sequence.truncate(random.between(first, first + rows));
    h.ids.resize(static_cast<size_t>(h.sequence.length()));
    if (h.ids.empty()) h.ids.push_back(0);
    h.sequence.table().remember(std::span(h.ids).first(static_cast<size_t>(h.sequence.length())));
  }

  int64_t size_;
  BlockPool pool_;
  test::FakeKv kv_;
  std::vector<std::unique_ptr<Held>> held_;
  int64_t adopted_ = 0;
  int64_t copied_ = 0;
};

TEST(BlockPool, RandomSequencesFindTheirOwnTokensAndLeakNoBlock) {
  test::Random random("block pool");
  RandomSequences sequences(60, 4);
  for (int i = 0; i < 30000; ++i) {
    sequences.operate(random);
    if (i % 20 == 0) sequences.expect_consistent();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  EXPECT_GT(sequences.adopted(), 1000);
  EXPECT_GT(sequences.copied(), 100);
  sequences.clear();
  EXPECT_EQ(sequences.pool().free_blocks(), 60);
}

TEST(BlockPool, ThePrefixThatWasUsedLongestAgoGoesFirst) {
  BlockPool pool(3);
  auto hold = [&](Ids ids) {
    Sequence s(pool, 2);
    std::vector<BlockCopy> copies;
    EXPECT_TRUE(s.table().reserve(0, std::ssize(ids), copies));
    s.table().remember(ids);
  };
  auto known = [&](Ids ids) { return pool.find(0, ids).has_value(); };
  hold({1, 1});
  hold({2, 2});
  hold({3, 3});
  EXPECT_EQ(pool.free_blocks(), 3);
  hold({1, 1});  // takes {1, 1}'s block: it is not asked for as a prefix here, and is the oldest
  EXPECT_TRUE(known({1, 1}));
  hold({4, 4});
  EXPECT_FALSE(known({2, 2}));
  EXPECT_TRUE(known({3, 3}));
  EXPECT_TRUE(known({4, 4}));
}

TEST(BlockPool, TheEndOfAPrefixGoesBeforeItsBeginning) {
  BlockPool pool(3);
  Ids ids{1, 2, 3, 4, 5, 6};
  {
    Sequence s(pool, 2);
    std::vector<BlockCopy> copies;
    ASSERT_TRUE(s.table().reserve(0, 6, copies));
    s.table().remember(ids);
  }
  ASSERT_TRUE(pool.take());
  Sequence again(pool, 2);
  again.adopt_prefix(Ids{1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(again.length(), 4);
}

}  // namespace
}  // namespace sluice
