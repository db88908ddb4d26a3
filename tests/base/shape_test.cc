#include "src/base/shape.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Shape, CountsElementsWithoutOverflow) {
  EXPECT_EQ(Shape({3, 5}).elements(), 15);
  EXPECT_EQ(Shape({}).elements(), 1);
  EXPECT_EQ(Shape({int64_t{1} << 40, int64_t{1} << 40}).elements(), std::nullopt);
  EXPECT_EQ(Shape({7, 2, 3}).cols(), 6);
  EXPECT_EQ(Shape({7}).rows(), 1);
  EXPECT_EQ(Shape({7}).cols(), 7);
  EXPECT_EQ(Shape({4096, 11008}).str(), "[4096, 11008]");
}

TEST(Shape, HoldsEightDimensions) {
  Shape s;
  for (int i = 0; i < Shape::kMaxDims; ++i) EXPECT_TRUE(s.push_back(2));
  EXPECT_FALSE(s.push_back(2));
  EXPECT_EQ(s.size(), Shape::kMaxDims);
}

}  // namespace
}  // namespace sluice
