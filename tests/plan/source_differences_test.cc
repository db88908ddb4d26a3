// Orders of rows: each has one that undoes it.
#include "src/plan/source_differences.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Kind = SourceOrder::Kind;

TEST(SourceDifferences, AnInverseUndoesAnOrder) {
  constexpr int64_t kRows = 48;
  for (const SourceOrder& order :
       {SourceOrder{}, SourceOrder{Kind::pairs, 8, 6}, SourceOrder{Kind::halves, 8, 6},
        SourceOrder{Kind::tiles, 4, 3, 4}, SourceOrder{Kind::tiles, 1, 8, 6}}) {
    const SourceOrder back = order.inverse();
    for (int64_t row = 0; row < kRows; ++row)
      EXPECT_EQ(back.source_of(order.source_of(row)), row) << static_cast<int>(order.kind);
    EXPECT_EQ(back.inverse(), order);
  }
}

TEST(SourceDifferences, RunsHaveTheirSourcesAtEqualSteps) {
  constexpr int64_t kRows = 48;
  for (const SourceOrder& order : {SourceOrder{Kind::pairs, 8, 6}, SourceOrder{Kind::halves, 8, 6},
                                   SourceOrder{Kind::tiles, 4, 3, 4}}) {
    for (int64_t row = 0; row < kRows;) {
      const int64_t run = order.run_from(row), step = order.step_at(row);
      ASSERT_GT(run, 0);
      for (int64_t i = 0; i < run; ++i)
        EXPECT_EQ(order.source_of(row + i), order.source_of(row) + i * step);
      row += run;
    }
  }
}

TEST(SourceDifferences, AMatrixTurnedTwiceIsAsBefore) {
  const SourceOrder order{Kind::turned, 12, 16};
  EXPECT_EQ(order.inverse(), (SourceOrder{Kind::turned, 16, 12}));
  EXPECT_EQ(order.source_of(25), 2 * 16);
}

}  // namespace
}  // namespace sluice
