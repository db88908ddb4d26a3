// Rows of logits with what makes the likeliest token a question: ties, zeros of both signs,
// infinities and NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/backend.h"

namespace sluice::test {

inline Matrix logits_rows(int64_t cols, Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Matrix m = Matrix::random(9, cols, random, 4);
  for (int64_t c = 0; c < cols; ++c) {
    m.at(1, c) = std::round(m.at(1, c) / 4);                        // many equals
    m.at(2, c) = c % 2 == 0 ? -0.0f : 0.0f;                         // all equal
    m.at(3, c) = -std::abs(m.at(3, c)) - 1;                         // none above zero
    m.at(4, c) = -kInfinity;                                        // nothing left
    m.at(5, c) = random.uniform() < 0.5 ? -kInfinity : m.at(5, c);  // some dropped
  }
  m.at(6, random.between(0, cols - 1)) = kInfinity;
  m.at(7, random.between(0, cols - 1)) = std::numeric_limits<float>::quiet_NaN();
  m.at(8, cols - 1) = 1e30f;  // the last one
  return m;
}

inline void expect_same(const std::vector<TokenLogit>& found,
                        const std::vector<TokenLogit>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t r = 0; r < found.size(); ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r);
    EXPECT_EQ(found[r].id, expected[r].id);
    if (std::isnan(expected[r].logit)) {
      EXPECT_TRUE(std::isnan(found[r].logit));
    } else {
      EXPECT_EQ(found[r].logit, expected[r].logit);
    }
  }
}

// The tokens of each row in the order of their ids; none where there were more than there is room.
struct TopRows {
  TopRows(int64_t rows, int64_t room)
      : most(room), tokens(static_cast<size_t>(rows * room)), counts(static_cast<size_t>(rows)) {}
  TopLogits out() { return {most, tokens.data(), counts.data()}; }
  std::vector<TokenLogit> row(int64_t r) const {
    const int32_t count = counts[static_cast<size_t>(r)];
    if (count > most) return {};
    std::vector<TokenLogit> sorted(tokens.begin() + r * most, tokens.begin() + r * most + count);
    std::ranges::sort(sorted, {}, &TokenLogit::id);
    return sorted;
  }
  int64_t most;
  std::vector<TokenLogit> tokens;
  std::vector<int32_t> counts;
};

inline void expect_same(const TopRows& found, const TopRows& expected) {
  EXPECT_EQ(found.counts, expected.counts);
  for (int64_t r = 0; r < std::ssize(expected.counts); ++r) {
    SCOPED_TRACE(testing::Message() << "of row " << r);
    expect_same(found.row(r), expected.row(r));
  }
}

}  // namespace sluice::test
