// Each processor against a plain statement of what it does.
#include "src/engine/logits_processors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;
using Row = std::vector<float>;

constexpr float kDropped = -std::numeric_limits<float>::infinity();

Row random_row(test::Random& random, size_t size) {
  Row row(size);
  for (float& l : row) l = random.normal(3);
  return row;
}

Ids random_ids(test::Random& random, int64_t count, int64_t vocab) {
  Ids ids;
  for (; count > 0; --count) ids.push_back(static_cast<int32_t>(random.between(0, vocab - 1)));
  return ids;
}

TEST(LogitsProcessors, KeepWhatAGrammarAllows) {
  test::Random random("a mask");
  for (size_t size : {1, 63, 64, 65, 200}) {
    const Row row = random_row(random, size);
    std::vector<uint64_t> bits(2);  // of 128 tokens: others have no text
    for (uint64_t& word : bits) word = random.engine()() | random.engine()();
    const Ids ends{3, 70, 500};
    for (bool may_end : {false, true}) {
      Row kept = row;
      keep_allowed(kept, {.bits = bits, .may_end = may_end}, ends);
      for (size_t id = 0; id < size; ++id) {
        const bool end = id == 3 || id == 70;
        const bool has_text = id < 128 && (bits[id / 64] >> (id % 64) & 1) != 0;
        EXPECT_EQ(kept[id], (end ? may_end : has_text) ? row[id] : kDropped) << id;
      }
    }
  }
}

TEST(LogitsProcessors, KeepAndDropTokens) {
  Row row{1, 2, 3, 4};
  keep_tokens(row, Ids{1, 3});
  EXPECT_EQ(row, (Row{kDropped, 2, kDropped, 4}));
  drop_tokens(row, Ids{3, -1, 4, 3});  // two that the row does not have
  EXPECT_EQ(row, (Row{kDropped, 2, kDropped, kDropped}));
  row = {1, 2, 3};
  keep_tokens(row, Ids{0, 1, 2});
  EXPECT_EQ(row, (Row{1, 2, 3}));
}

TEST(LogitsProcessors, BiasIsAdded) {
  Row row{1, 2, kDropped};
  add_logit_bias(row, {{0, -3.0f}, {2, 100.0f}, {7, 1.0f}});
  EXPECT_EQ(row, (Row{-2, 2, kDropped}));
}

TEST(LogitsProcessors, PenaltiesCountEachTokenOnceOrAsOftenAsItIsThere) {
  test::Random random("penalties");
  TokenCounter counter;
  for (int round = 0; round < 50; ++round) {
    auto vocab = random.between(1, 60);
    Ids ids = random_ids(random, random.between(0, 100), vocab);
    const Row before = random_row(random, static_cast<size_t>(vocab));
    Row repeated = before, occurred = before;
    penalize_repetition(repeated, ids, 1.3, counter);
    penalize_occurrences(occurred, ids, 0.5, -0.25, counter);
    for (int32_t id = 0; id < vocab; ++id) {
      auto i = static_cast<size_t>(id);
      auto count = static_cast<float>(std::ranges::count(ids, id));
      float l = before[i];
      EXPECT_NEAR(repeated[i], count == 0 ? l : l < 0 ? l * 1.3 : l / 1.3, 1e-5);
      EXPECT_NEAR(occurred[i], count == 0 ? l : l - 0.5 + 0.25 * count, 1e-5);
    }
  }
}

TEST(LogitsProcessors, NoNgramASecondTime) {
  test::Random random("ngrams");
  for (int round = 0; round < 300; ++round) {
    auto vocab = random.between(1, 4);  // few: many repetitions, which may overlap
    Ids ids = random_ids(random, random.between(0, 30), vocab);
    auto n = random.between(1, 5);
    std::set<Ids> seen;
    for (int64_t at = 0; at + n <= std::ssize(ids); ++at)
      seen.insert(Ids(ids.begin() + at, ids.begin() + at + n));
    Row row(static_cast<size_t>(vocab));
    drop_repeated_ngrams(row, ids, n);
    for (int32_t id = 0; id < vocab; ++id) {
      bool repeats = false;
      if (std::ssize(ids) >= n - 1) {
        Ids next(ids.end() - (n - 1), ids.end());
        next.push_back(id);
        repeats = seen.contains(next);
      }
      EXPECT_EQ(row[static_cast<size_t>(id)], repeats ? kDropped : 0) << n << " " << id;
    }
  }
}

// One token over and over is where a naive search takes n steps at each place.
TEST(LogitsProcessors, LongNgramsInALongHistoryTakeLinearTime) {
  Ids ids(1 << 20, 1);
  Row row(3);
  drop_repeated_ngrams(row, ids, 1 << 19);
  EXPECT_EQ(row, (Row{0, kDropped, 0}));
}

}  // namespace
}  // namespace sluice
