// Choices of experts that the tests of all backends share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/backend.h"

namespace sluice::test {

struct RouteProblem {
  // A draw of sizes and options; logits differ clearly, or are equal.
  explicit RouteProblem(Random& random)
      : groups(std::array<int64_t, 4>{1, 1, 2, 4}[static_cast<size_t>(random.between(0, 3))]),
        experts(groups * random.between(1, 40)),
        logits(9, experts),
        bias(static_cast<size_t>(experts)),
        factors(bias.size()) {
    params.score = random.between(0, 1) == 0 ? RouterScore::softmax : RouterScore::sigmoid;
    params.groups = groups;
    params.top_k_groups = random.between(1, groups);
    params.top_k = random.between(1, std::min<int64_t>(12, experts / groups * params.top_k_groups));
    params.normalized = random.between(0, 1) == 1;
    params.added = 1e-6f;
    params.groups_by_largest = random.between(0, 1) == 1;
    params.chooses_logits = random.between(0, 3) == 0;
    params.factor = 2.5f;
    has_bias = random.between(0, 1) == 1;
    for (int64_t r = 0; r < logits.rows(); ++r) {
      for (int64_t e = 0; e < experts; ++e)
        logits.at(r, e) = static_cast<float>(random.between(-20, 20)) / 8;
    }
    for (float& b : bias) b = static_cast<float>(random.between(-4, 4)) / 64;
    for (float& f : factors) f = static_cast<float>(random.between(1, 8)) / 4;
  }

  int64_t groups, experts;
  RouterParams params;  // without its bias and factors
  bool has_bias = false;
  Matrix logits;
  std::vector<float> bias, factors;
};

struct Chosen {
  Chosen(int64_t rows, int64_t top_k)
      : experts(static_cast<size_t>(rows * top_k), -1), weights(experts.size(), -1) {}
  ExpertChoices out() { return {experts.data(), weights.data()}; }
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

inline void expect_same(const Chosen& found, const Chosen& expected) {
  ASSERT_EQ(found.experts, expected.experts);
  for (size_t i = 0; i < expected.weights.size(); ++i)
    EXPECT_NEAR(found.weights[i], expected.weights[i], 1e-6f * expected.weights[i]);
}

}  // namespace sluice::test
