// Each way to make one vector of a prompt's rows.
#include "src/engine/row_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace sluice {
namespace {

using testing::ElementsAre;

std::vector<float> pooled(Pooling pooling, const std::vector<std::array<float, 2>>& rows) {
  RowPool pool(pooling, std::ssize(rows));
  while (!pool.done()) pool.add(rows[static_cast<size_t>(pool.next())]);
  std::vector<float> vector(2);
  pool.take(vector);
  return vector;
}

TEST(RowPool, MakesOneVectorOfRows) {
  const std::vector<std::array<float, 2>> rows{{1, -8}, {5, -2}, {3, -2}, {-1, -4}};
  EXPECT_THAT(pooled(Pooling::last, rows), ElementsAre(-1, -4));
  EXPECT_THAT(pooled(Pooling::first, rows), ElementsAre(1, -8));
  EXPECT_THAT(pooled(Pooling::mean, rows), ElementsAre(2, -4));
  EXPECT_THAT(pooled(Pooling::max, rows), ElementsAre(5, -2));
  EXPECT_THAT(pooled(Pooling::root_mean, rows), ElementsAre(4, -8));
  EXPECT_THAT(pooled(Pooling::weighted_mean, rows), ElementsAre(1.6f, -3.4f));
  for (Pooling pooling : {Pooling::last, Pooling::first, Pooling::mean, Pooling::max,
                          Pooling::root_mean, Pooling::weighted_mean})
    EXPECT_THAT(pooled(pooling, {{2, -3}}), ElementsAre(2, -3));
}

TEST(RowPool, ValuesThatAreNotFiniteStay) {
  for (size_t at : {0, 1, 2}) {
    std::vector<std::array<float, 2>> rows{{1, 1}, {2, 2}, {3, 3}};
    rows[at][0] = NAN;
    for (Pooling pooling : {Pooling::mean, Pooling::max, Pooling::weighted_mean})
      EXPECT_TRUE(std::isnan(pooled(pooling, rows)[0])) << at;
  }
}

}  // namespace
}  // namespace sluice
