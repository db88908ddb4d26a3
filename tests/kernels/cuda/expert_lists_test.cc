// Lists that a GPU makes of choices of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/experts.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using test::Buffer;
using test::Random;
using test::stream;

// Each row's experts, by rising numbers; some experts have many rows.
std::vector<int32_t> choices_of(int64_t rows, int64_t top_k, int64_t count, Random& random) {
  std::vector<int32_t> all(static_cast<size_t>(count)), choices;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t among = std::max(top_k, random.between(0, 1) == 0 ? count / 4 : count);
    for (size_t i = 0; i < static_cast<size_t>(top_k); ++i)
      std::swap(all[i],
                all[static_cast<size_t>(random.between(static_cast<int64_t>(i), among - 1))]);
    choices.insert(choices.end(), all.begin(), all.begin() + top_k);
    std::sort(choices.end() - top_k, choices.end());
    std::ranges::sort(all);
  }
  return choices;
}

TEST(CudaExpertLists, SortedByExpertAndThenByRow) {
  Random random("CudaExpertLists.SortedByExpertAndThenByRow");
  struct Case {
    int64_t rows, top_k, count, tile_rows;
  };
  for (const Case& c : {Case{1, 1, 1, 64}, Case{17, 2, 5, 64}, Case{300, 8, 64, 64},
                        Case{260, 40, 130, 128}, Case{100, 3, 1024, 64}, Case{600, 1, 2, 128}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows, " << c.top_k << " of " << c.count);
    const std::vector<int32_t> experts = choices_of(c.rows, c.top_k, c.count, random);
    const size_t pairs = experts.size();
    const Buffer<int32_t> chosen(experts);
    const int64_t most = cuda::most_expert_tiles(c.rows * c.top_k, c.count, c.tile_rows);
    for (int order = 0; order < test::kThreadOrders; ++order) {
      test::order_threads(order);
      Buffer<int32_t> rows(pairs), places(pairs);
      Buffer<cuda::ExpertTile> tiles(static_cast<size_t>(most));
      cuda::make_expert_lists(chosen.data(), c.rows, c.top_k, c.count,
                              {rows.data(), places.data(), tiles.data(), most, c.tile_rows},
                              stream());
      std::vector<size_t> sorted(pairs);
      std::iota(sorted.begin(), sorted.end(), 0);
      std::ranges::stable_sort(sorted, {}, [&](size_t pair) { return experts[pair]; });
      const std::vector<int32_t> found = rows.copy(), at = places.copy();
      for (size_t i = 0; i < pairs; ++i) {
        ASSERT_EQ(found[i], static_cast<int32_t>(sorted[i]) / static_cast<int32_t>(c.top_k));
        ASSERT_EQ(at[sorted[i]], static_cast<int32_t>(i));
      }
      int32_t next = 0;
      bool ended = false;
      for (const cuda::ExpertTile& tile : tiles.copy()) {
        ended |= tile.expert < 0;
        if (ended) {
          ASSERT_EQ(tile.expert, -1);
          continue;
        }
        ASSERT_EQ(tile.first, next);
        ASSERT_TRUE(tile.count > 0 && tile.count <= c.tile_rows);
        for (int32_t i = 0; i < tile.count; ++i)
          ASSERT_EQ(experts[sorted[static_cast<size_t>(next + i)]], tile.expert);
        next += tile.count;
      }
      EXPECT_EQ(next, static_cast<int32_t>(pairs));
      EXPECT_TRUE(rows.intact() && places.intact() && tiles.intact());
    }
    test::order_threads(0);
  }
}

}  // namespace
}  // namespace sluice
