// Tensor-parallel arithmetic, exhaustively over small shapes: what the ranks hold, put together, is
// the whole.
#include "src/nn/shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/nn/layers.h"

namespace sluice {
namespace {

TEST(Shard, RowsCoverEachUnitOnceWithEvenShares) {
  for (int size = 1; size <= 5; ++size) {
    for (int64_t unit : {1, 3, 8}) {
      for (int64_t units = size; units <= 20; ++units) {
        int64_t next = 0;
        for (int r = 0; r < size; ++r) {
          Cut cut = Shard::by_rows(unit).cut(units * unit, 7, {r, size});
          EXPECT_EQ(cut.row, next);
          EXPECT_EQ(cut.rows % unit, 0);
          EXPECT_GE(cut.rows / unit, units / size);
          EXPECT_LE(cut.rows / unit, units / size + 1);
          EXPECT_EQ(cut.col, 0);
          EXPECT_EQ(cut.cols, 7);
          next += cut.rows;
        }
        EXPECT_EQ(next, units * unit);
      }
    }
  }
}

TEST(Shard, FewerUnitsThanRanksAreReplicated) {
  for (int size = 2; size <= 8; ++size) {
    for (int64_t units = 1; units < size; ++units) {
      std::vector<int> holders(static_cast<size_t>(units), 0);
      int64_t last = 0;
      for (int r = 0; r < size; ++r) {
        Cut cut = Shard::by_rows(4).cut(units * 4, 3, {r, size});
        EXPECT_EQ(cut.rows, 4);
        EXPECT_GE(cut.row, last);  // neighbours share
        last = cut.row;
        ++holders[static_cast<size_t>(cut.row / 4)];
      }
      for (int h : holders) EXPECT_GE(h, size / units);
    }
  }
}

TEST(Shard, ColumnsMirrorRows) {
  for (int r = 0; r < 3; ++r) {
    Cut rows = Shard::by_rows(2).cut(14, 5, {r, 3});
    Cut cols = Shard::by_cols(2).cut(5, 14, {r, 3});
    EXPECT_EQ(rows.row, cols.col);
    EXPECT_EQ(rows.rows, cols.cols);
    EXPECT_EQ(cols.rows, 5);
  }
  EXPECT_EQ(Shard::whole().cut(4, 5, {2, 3}), (Cut{0, 4, 0, 5}));
}

// A query head must find its KV head on its own rank, whatever the ratio of heads to ranks.
TEST(Shard, QueryHeadsMeetTheirKvHeads) {
  constexpr int64_t kHeadDim = 4;
  for (int64_t kv_heads : {1, 2, 4, 8}) {
    for (int64_t ratio : {1, 2, 3, 6}) {
      int64_t heads = kv_heads * ratio;
      for (int size : {1, 2, 3, 4}) {
        bool even = heads % size == 0 && (kv_heads % size == 0 || size % kv_heads == 0);
        if (!even) continue;
        for (int r = 0; r < size; ++r) {
          Cut q = Shard::by_rows(kHeadDim).cut(heads * kHeadDim, 1, {r, size});
          Cut kv = Shard::by_rows(kHeadDim).cut(kv_heads * kHeadDim, 1, {r, size});
          for (int64_t h = q.row / kHeadDim; h < (q.row + q.rows) / kHeadDim; ++h) {
            int64_t needed = h / ratio * kHeadDim;
            EXPECT_GE(needed, kv.row);
            EXPECT_LT(needed, kv.row + kv.rows);
          }
        }
      }
    }
  }
}

// The ranks that have the same KV head divide its heads, however many these are.
TEST(Shard, RanksOfAKvHeadDivideItsHeads) {
  constexpr int64_t kHeadDim = 4;
  for (int64_t kv_heads : {1, 2, 3, 4}) {
    for (int64_t ratio : {1, 2, 3, 5}) {
      for (int size = static_cast<int>(kv_heads) + 1; size <= kv_heads * ratio; ++size) {
        const Dimension heads{
            .size = kv_heads * ratio * kHeadDim, .unit = kHeadDim, .groups = kv_heads};
        int64_t next = 0;
        for (int r = 0; r < size; ++r) {
          const Cut q = Shard::by_rows(heads).cut(heads.size, 1, {r, size});
          const Cut kv = Shard::by_rows(kHeadDim).cut(kv_heads * kHeadDim, 1, {r, size});
          EXPECT_EQ(q.row, next);
          EXPECT_GT(q.rows, 0);
          next += q.rows;
          EXPECT_EQ(kv.rows, kHeadDim);
          EXPECT_GE(q.row / ratio, kv.row);
          EXPECT_LE((q.row + q.rows) / ratio, kv.row + kv.rows);
        }
        EXPECT_EQ(next, heads.size);
      }
    }
  }
}

TEST(Linear, PiecesBeginOnPanelsAndBiasesFallOnTheirRows) {
  struct Opened : Linear {
    using Linear::Linear;
  };
  Opened layer("fused", {{"a", 20}, {"b", 7}, {"c", 16}}, 12, true, Rank{});
  std::vector<const Param*> params;
  layer.each_param([&](Param& p) { params.push_back(&p); });
  ASSERT_EQ(params.size(), 2u);
  EXPECT_EQ(layer.outputs(), 32 + 16 + 16);
  EXPECT_EQ(params[0]->pieces[1].source, "b.weight");
  EXPECT_EQ(params[1]->pieces[2].source, "c.bias");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(layer.part_begin(i) % kPanelRows, 0);
    EXPECT_EQ(params[1]->pieces[i].offset, layer.part_begin(i));
  }
  EXPECT_EQ(params[1]->cols, layer.outputs());
  EXPECT_TRUE(params[0]->value.is_meta());
}

}  // namespace
}  // namespace sluice
