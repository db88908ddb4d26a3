#include "src/kv/block_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

TEST(BlockPool, RandomSequencesNeverShareABlockAndLeakNone) {
  test::Random random("block pool");
  constexpr int64_t kBlocks = 50;
  constexpr int64_t kBlockSize = 4;
  BlockPool pool(kBlocks);
  {
    std::vector<std::unique_ptr<BlockTable>> tables;
    std::vector<int64_t> lengths;
    for (int i = 0; i < 5000; ++i) {
      double choice = random.uniform();
      if (tables.empty() || choice < 0.2) {
        tables.push_back(std::make_unique<BlockTable>(pool, kBlockSize));
        lengths.push_back(0);
      } else if (choice < 0.35) {
        size_t victim = static_cast<size_t>(random.between(0, std::ssize(tables) - 1));
        tables.erase(tables.begin() + static_cast<long>(victim));
        lengths.erase(lengths.begin() + static_cast<long>(victim));
      } else {
        size_t t = static_cast<size_t>(random.between(0, std::ssize(tables) - 1));
        int64_t tokens = lengths[t] + random.between(1, 9);
        if (tables[t]->reserve(tokens)) lengths[t] = tokens;
      }
      std::set<int32_t> seen;
      int64_t held = 0;
      for (size_t t = 0; t < tables.size(); ++t) {
        for (int32_t b : tables[t]->blocks()) EXPECT_TRUE(seen.insert(b).second);
        held += std::ssize(tables[t]->blocks());
        for (int64_t p = 0; p < lengths[t]; ++p) {
          EXPECT_EQ(tables[t]->slot(p),
                    tables[t]->blocks()[static_cast<size_t>(p / kBlockSize)] * kBlockSize +
                        p % kBlockSize);
        }
      }
      ASSERT_EQ(held + pool.free_blocks(), kBlocks);
    }
  }
  EXPECT_EQ(pool.free_blocks(), kBlocks);
}

}  // namespace
}  // namespace sluice
