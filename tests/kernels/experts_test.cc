// Choices of experts, and the rows that go to them and come back, by every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/experts_problem.h"

namespace sluice {
namespace {

using test::Backend;
using test::Chosen;
using test::Matrix;
using test::Random;
using test::RouteProblem;

class Experts : public test::EveryTarget {};

TEST_P(Experts, ChoicesEqualTheReference) {
  Random random("Experts.ChoicesEqualTheReference");
  Backend backend(GetParam(), Compute::bf16, {}, 2), reference(Isa::reference, Compute::bf16, {});
  for (int i = 0; i < GetParam().size(50, 12); ++i) {
    RouteProblem p(random);
    if (p.has_bias) p.params.bias = p.bias.data();
    if (p.has_bias != p.params.normalized) p.params.factors = p.factors.data();
    Chosen found(9, p.params.top_k), expected(9, p.params.top_k);
    backend->route(p.logits.tensor(), p.params, found.out());
    reference->route(p.logits.tensor(), p.params, expected.out());
    test::expect_same(found, expected);
  }
}

// By hand: softmax of [ln 1, ln 2, ln 4, ln 1] is [1, 2, 4, 1] / 8.
TEST_P(Experts, ChoicesByTheirDefinition) {
  Backend backend(GetParam(), Compute::bf16, {});
  Matrix logits(1, 4);
  const float ln2 = std::log(2.0f);
  for (int64_t e = 0; e < 4; ++e) logits.at(0, e) = std::array{0.0f, ln2, 2 * ln2, 0.0f}[e];
  auto route = [&](const RouterParams& params) {
    Chosen chosen(1, params.top_k);
    backend->route(logits.tensor(), params, chosen.out());
    return chosen;
  };
  Chosen two = route({.top_k = 2});
  EXPECT_EQ(two.experts, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(two.weights[0], 0.25f, 1e-6f);
  EXPECT_NEAR(two.weights[1], 0.5f, 1e-6f);
  two = route({.top_k = 2, .normalized = true, .factor = 3});
  EXPECT_NEAR(two.weights[0], 1, 1e-5f);
  EXPECT_NEAR(two.weights[1], 2, 1e-5f);
  // Equal scores choose the lowest expert; a bias changes the choice and not the weight.
  EXPECT_EQ(route({.top_k = 3}).experts, (std::vector<int32_t>{0, 1, 2}));
  const std::vector<float> bias{0, 0, 0, 0.5f};
  const Chosen biased = route({.top_k = 1, .bias = bias.data()});
  EXPECT_EQ(biased.experts, (std::vector<int32_t>{3}));
  EXPECT_NEAR(biased.weights[0], 0.125f, 1e-6f);
  // 1 + 2 of the first group are less than 4 + 1 of the second.
  EXPECT_EQ(route({.top_k = 2, .groups = 2, .top_k_groups = 1}).experts,
            (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(route({.score = RouterScore::sigmoid, .top_k = 1}).weights[0], 0.8f, 1e-6f);
}

// By hand: roots of ln(1 + e^x), of those that a table has for the rows' tokens.
TEST_P(Experts, ChoicesOfATableByItsDefinition) {
  Backend backend(GetParam(), Compute::bf16, {});
  Matrix logits(2, 4);
  for (int64_t e = 0; e < 4; ++e) logits.at(0, e) = logits.at(1, e) = static_cast<float>(e);
  const std::vector<float> table{0, 1, 3, 1, 9, -2};  // the last are no experts
  const std::vector<int32_t> ids{1, 2};
  const auto score = [](double x) {
    return static_cast<float>(std::sqrt(std::log1p(std::exp(x))));
  };
  Chosen two(2, 2);
  backend->route(
      logits.tensor(),
      {.score = RouterScore::sqrt_softplus, .top_k = 2, .table = table.data(), .ids = ids},
      two.out());
  EXPECT_EQ(two.experts, (std::vector<int32_t>{1, 3, 0, 3}));
  EXPECT_NEAR(two.weights[0], score(1), 1e-6F);
  EXPECT_NEAR(two.weights[1], score(3), 1e-6F);
}

// By hand: 1 is chosen, of a softmax with 3, which is within a fifth of it,
// then 3 with 0.
TEST_P(Experts, ChoicesOfASparseMixerByTheirDefinition) {
  Backend backend(GetParam(), Compute::bf16, {});
  Matrix logits(1, 4);
  for (int64_t e = 0; e < 4; ++e) logits.at(0, e) = std::array{4.0f, 6.0f, -6.0f, 5.0f}[e];
  Chosen two(1, 2);
  backend->route(logits.tensor(), {.score = RouterScore::sparse_mixer, .top_k = 2, .jitter = 0.1f},
                 two.out());
  EXPECT_EQ(two.experts, (std::vector<int32_t>{1, 3}));
  const auto share = static_cast<float>(1 / (1 + std::exp(-1.0)));
  EXPECT_NEAR(two.weights[0], share, 1e-6f);
  EXPECT_NEAR(two.weights[1], share, 1e-6f);
}

TEST_P(Experts, ChoicesOfWhatIsNoNumberAreExperts) {
  Backend backend(GetParam(), Compute::bf16, {});
  for (float value : {NAN, INFINITY, -INFINITY}) {
    Matrix logits(2, 6);
    for (int64_t e = 0; e < 6; ++e) logits.at(0, e) = value, logits.at(1, e) = e == 2 ? value : 0;
    Chosen chosen(2, 4);
    backend->route(logits.tensor(), {.top_k = 4, .groups = 2, .top_k_groups = 2}, chosen.out());
    for (size_t r = 0; r < 2; ++r) {
      for (size_t i = 4 * r; i < 4 * r + 4; ++i) {
        EXPECT_TRUE(chosen.experts[i] >= 0 && chosen.experts[i] < 6);
        EXPECT_TRUE(i == 4 * r || chosen.experts[i - 1] < chosen.experts[i]);
      }
    }
  }
}

TEST_P(Experts, RowsAreGatheredAndAdded) {
  Random random("Experts.RowsAreGatheredAndAdded");
  for (int64_t cols : {int64_t{1}, int64_t{64}, int64_t{1028}, random.between(2, 3000)}) {
    Backend backend(GetParam(), Compute::bf16, {}, 2), reference(Isa::reference, Compute::bf16, {});
    Matrix x = Matrix::random(20, cols, random), some(7, cols);
    std::vector<int32_t> rows(20);
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t i = 0; i < 7; ++i)
      std::swap(rows[i], rows[static_cast<size_t>(random.between(static_cast<int64_t>(i), 19))]);
    rows.resize(7);
    backend->index_select(x.tensor(), rows, {}, some.tensor());
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        EXPECT_EQ(some.at(r, c), x.at(rows[static_cast<size_t>(r)], c));
    }
    EXPECT_TRUE(some.gaps_untouched());
    Matrix weights = Matrix::random(7, 1, random);
    Matrix y = Matrix::random(20, cols, random), same = y;
    for (const Tensor& by : {weights.tensor(), Tensor{}}) {
      backend->index_add(some.tensor(), rows, by, y.tensor());
      reference->index_add(some.tensor(), rows, by, same.tensor());
      EXPECT_TRUE(same_bits(y, same));
    }
    Matrix weighted(7, cols), same_weighted(7, cols);
    backend->index_select(x.tensor(), rows, weights.tensor(), weighted.tensor());
    reference->index_select(x.tensor(), rows, weights.tensor(), same_weighted.tensor());
    EXPECT_TRUE(same_bits(weighted, same_weighted));
    EXPECT_TRUE(y.gaps_untouched());
  }
}

SLUICE_OVER_EVERY_TARGET(Experts);

}  // namespace
}  // namespace sluice
