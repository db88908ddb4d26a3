// Needs of several requests together, from a summary of them.
#include "src/serve/batch/batch_width.h"

#include <gtest/gtest.h>

#include "tests/serve/demo.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

TEST(LargestValues, SumsAreExactForFewAndNearlyForMany) {
  LargestValues few;
  few.add(1000, 3);
  few.add(16, 100);
  few.add(0, 1);
  EXPECT_EQ(few.sum(2), 2000);
  EXPECT_EQ(few.sum(5), 3032);
  EXPECT_EQ(few.sum(1000), 4600);

  test::Random random(uint64_t{1});
  LargestValues many;
  std::vector<int64_t> values;
  for (int i = 0; i < 2000; ++i) {
    values.push_back(random.between(1, 50'000));
    many.add(values.back(), 1);
  }
  std::ranges::sort(values, std::greater{});
  int64_t sum = 0;
  for (int64_t n = 0; n < std::ssize(values); sum += values[static_cast<size_t>(n++)]) {
    ASSERT_GE(many.sum(n), sum) << n;
    ASSERT_LE(many.sum(n), sum + sum / 8) << n;
  }
}

// A batch takes what makes all of it faster. Of those who ask a server none waits while there is
// room, as more sequences are hardly slower.
TEST(BatchWidth, AServerTakesMoreThanABatch) {
  Planner planner(test::demo_options());
  BatchNeeds needs;
  Request request;
  request.max_tokens = 20;
  needs.add(request, 20, 64, 0, planner);
  const int64_t batch = choose_batch_width(planner, needs, 64, BatchAim::speed).sequences;
  EXPECT_GT(batch, 1);
  EXPECT_LT(batch, 64);
  EXPECT_EQ(choose_batch_width(planner, needs, 64, BatchAim::no_waiting).sequences, 64);
}

}  // namespace
}  // namespace sluice
