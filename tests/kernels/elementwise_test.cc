// Norms, rope, activations, sums, embeddings and likeliest tokens, by every target: sizes around
// those of vectors, warps and blocks, rows that vectors can and cannot read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "tests/kernels/backend.h"
#include "tests/kernels/logits_rows.h"

namespace sluice {
namespace {

using test::Backend;
using test::Matrix;
using test::Random;
using test::random_vector;
using test::StoredWeight;

class Elementwise : public test::EveryTarget {
 protected:
  void SetUp() override {
    EveryTarget::SetUp();
    if (!IsSkipped())
      backend =
          made_.emplace(GetParam(), Compute::bf16, WorkspaceNeeds{70, 3000, 8}, 2).kernels.get();
  }
  Backend reference{Isa::reference, Compute::bf16, {}};
  const Kernels* backend = nullptr;

 private:
  std::optional<Backend> made_;
};

struct Size {
  int64_t rows, cols;
};
std::vector<Size> sizes(Random& random) {
  return {{1, 1},
          {3, 31},
          {2, 33},
          {5, 128},
          {4, 1024},
          {2, 2052},
          {3, 2050},
          {random.between(1, 6), 8 * random.between(1, 350)},
          {random.between(1, 30), random.between(1, 600)}};
}

StoredWeight vector_weight(DType dtype, int64_t cols, Random& random) {
  return encoded({"none"}, dtype, WeightLayout::rows, Matrix::random(1, cols, random));
}

// Every kind of norm, its bias where it has one.
std::vector<NormParams> norms(const std::vector<float>& bias) {
  return {{.eps = 1e-5f},
          {.eps = 1e-5f, .weight_offset = 1},
          {.eps = 1e-5f, .kind = NormKind::layer},
          {.eps = 1e-5f, .kind = NormKind::layer, .bias = bias.data()}};
}

TEST_P(Elementwise, NormsEqualTheReference) {
  Random random("Elementwise.NormsEqualTheReference");
  std::vector<std::pair<QuantScheme, DType>> weights;
  for (DType stored : {DType::f32, DType::f16}) weights.emplace_back(QuantScheme{"none"}, stored);
  for (const QuantScheme& scheme : element_schemes()) weights.emplace_back(scheme, DType::bf16);
  size_t kind = 0;  // each size has all of them, and so has each weight
  for (const auto& [n, cols] : sizes(random)) {
    const std::vector<float> bias = random_vector(cols, random);
    for (const auto& [scheme, stored] : weights) {
      const NormParams params = norms(bias)[kind++ % 4];
      if (test::leaves_out(random)) continue;
      const bool layer = params.kind == NormKind::layer;
      SCOPED_TRACE(testing::Message() << (layer ? "layer" : "rms") << " norm of " << n << " x "
                                      << cols << ", " << scheme.name);
      StoredWeight w = encoded(scheme, stored, WeightLayout::rows, Matrix::random(1, cols, random));
      Matrix x = Matrix::random(n, cols, random, 3), y(n, cols), expected(n, cols);
      backend->norm(x.tensor(), w.weight, params, y.tensor());
      reference->norm(x.tensor(), w.weight, params, expected.tensor());
      // Subtracting the mean leaves an absolute error, which a small deviation of few columns
      // enlarges.
      expect_near(y, expected, !layer ? 1e-30f : cols < 16 ? 1e-3f : 1e-5f, 3e-6f);
      backend->norm(x.tensor(), w.weight, params, x.tensor());  // in place
      EXPECT_TRUE(same_bits(x, y));
    }
    ++kind;
  }
}

TEST_P(Elementwise, NormsOfPartsAreThoseOfEachAlone) {
  Random random("Elementwise.NormsOfPartsAreThoseOfEachAlone");
  for (int64_t cols : {int64_t{1}, int64_t{64}, int64_t{128}, random.between(2, 200)}) {
    const int64_t n = random.between(1, 4), parts = random.between(2, 5);
    const std::vector<float> bias = random_vector(cols, random);
    StoredWeight w = vector_weight(DType::bf16, cols, random);
    for (const NormParams& params : norms(bias)) {
      Matrix x = Matrix::random(n, parts * cols, random), y(n, parts * cols), alone = y;
      backend->norm(x.tensor(), w.weight, params, y.tensor());
      for (int64_t p = 0; p < parts; ++p) {
        backend->norm(x.tensor().columns(p * cols, cols), w.weight, params,
                      alone.tensor().columns(p * cols, cols));
      }
      EXPECT_TRUE(same_bits(y, alone));
      EXPECT_TRUE(y.gaps_untouched());
    }
  }
}

TEST_P(Elementwise, NormsOfTwoElements) {
  // [3, 4]: mean of squares 12.5; mean 3.5, and a variance of 0.25.
  Matrix x(1, 2), y(1, 2);
  x.at(0, 0) = 3;
  x.at(0, 1) = 4;
  StoredWeight w({DType::f32, WeightLayout::rows, ScaleKind::none}, 1, 2);
  reinterpret_cast<float*>(w.weight.data)[0] = 1;
  reinterpret_cast<float*>(w.weight.data)[1] = 2;
  const std::vector<float> bias{10, 20};
  auto expect = [&](const NormParams& params, double first, double second) {
    backend->norm(x.tensor(), w.weight, params, y.tensor());
    EXPECT_NEAR(y.at(0, 0), first, 2e-6);
    EXPECT_NEAR(y.at(0, 1), second, 2e-6);
  };
  expect({}, 3 / std::sqrt(12.5), 8 / std::sqrt(12.5));
  expect({.weight_offset = 1}, 6 / std::sqrt(12.5), 12 / std::sqrt(12.5));
  expect({.kind = NormKind::layer}, -1, 2);
  expect({.kind = NormKind::layer, .bias = bias.data()}, 9, 22);
  expect({.eps = 0.75f, .kind = NormKind::layer}, -0.5, 1);
}

TEST_P(Elementwise, LikeliestIsTheFirstOfTheLargest) {
  Random random("Elementwise.LikeliestIsTheFirstOfTheLargest");
  for (int64_t cols : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{31}, int64_t{33}, int64_t{512},
                       int64_t{513}, random.between(2, GetParam().size(9000, 5000))}) {
    SCOPED_TRACE(testing::Message() << cols << " columns");
    Matrix m = test::logits_rows(cols, random);
    std::vector<TokenLogit> found(9), expected(9);
    reference->likeliest(m.tensor(), expected);
    backend->likeliest(m.tensor(), found);
    test::expect_same(found, expected);
    for (int64_t r : {0, 1, 2, 3, 5, 8}) {
      const float* row = m.tensor().row<float>(r);
      EXPECT_EQ(expected[static_cast<size_t>(r)].id, std::max_element(row, row + cols) - row);
    }
    EXPECT_TRUE(std::isnan(expected[7].logit));
  }
}

TEST_P(Elementwise, TopLogitsAreTheLargestAndTheirEquals) {
  Random random("Elementwise.TopLogitsAreTheLargestAndTheirEquals");
  for (int64_t cols : {int64_t{1}, int64_t{31}, int64_t{513}, random.between(2, 3000)}) {
    for (int64_t k : {1, 7, 40}) {
      SCOPED_TRACE(testing::Message() << k << " of " << cols << " columns");
      Matrix m = test::logits_rows(cols, random);
      test::TopRows found(9, 40), expected(9, 40);
      reference->top_logits(m.tensor(), k, expected.out());
      backend->top_logits(m.tensor(), k, found.out());
      test::expect_same(found, expected);
      for (int64_t r : {0, 1, 2, 5, 6}) {  // by sorting
        std::vector<float> sorted(m.tensor().row<float>(r), m.tensor().row<float>(r) + cols);
        std::ranges::sort(sorted, std::greater());
        const float least = sorted[static_cast<size_t>(std::min(k, cols) - 1)];
        EXPECT_EQ(expected.counts[static_cast<size_t>(r)],
                  std::ranges::count_if(sorted, [&](float x) { return x >= least; }));
        for (const TokenLogit& t : expected.row(r)) {
          EXPECT_EQ(t.logit, m.at(r, t.id));
          EXPECT_GE(t.logit, least);
        }
      }
      EXPECT_TRUE(std::isnan(expected.row(7).empty()
                                 ? NAN
                                 : std::ranges::max(expected.row(7), {}, [](const TokenLogit& t) {
                                     return std::isnan(t.logit);
                                   }).logit));
    }
  }
}

TEST_P(Elementwise, AddNormIsBothInOne) {
  Random random("Elementwise.AddNormIsBothInOne");
  for (size_t kind = 0; const auto& [n, cols] : sizes(random)) {
    const std::vector<float> bias = random_vector(cols, random);
    const NormParams params = norms(bias)[kind++ % 4];
    Matrix residual = Matrix::random(n, cols, random), x = Matrix::random(n, cols, random);
    Matrix sum = residual, y(n, cols), expected(n, cols);
    StoredWeight w = vector_weight(DType::bf16, cols, random);
    backend->add_norm(residual.tensor(), x.tensor(), w.weight, params, y.tensor());
    backend->add(sum.tensor(), x.tensor());
    backend->norm(sum.tensor(), w.weight, params, expected.tensor());
    EXPECT_TRUE(same_bits(residual, sum));
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_TRUE(residual.gaps_untouched() && y.gaps_untouched());
  }
}

// Rows alone give what they give in a batch.
TEST_P(Elementwise, RowsDoNotDependOnTheBatch) {
  Random random("Elementwise.RowsDoNotDependOnTheBatch");
  const int64_t n = GetParam().size(70, 5), cols = random.between(400, 500);
  Matrix x = Matrix::random(n, cols, random), up = Matrix::random(n, cols, random);
  Matrix norm(n, cols), norm_alone(n, cols), gated(n, cols), gated_alone(n, cols);
  StoredWeight w = vector_weight(DType::bf16, cols, random);
  backend->norm(x.tensor(), w.weight, {1e-6f}, norm.tensor());
  backend->activate({Activation::silu}, x.tensor(), up.tensor(), gated.tensor());
  for (int64_t r = 0; r < n; ++r) {
    backend->norm(x.tensor().rows_from(r, 1), w.weight, {1e-6f},
                  norm_alone.tensor().rows_from(r, 1));
    backend->activate({Activation::silu}, x.tensor().rows_from(r, 1), up.tensor().rows_from(r, 1),
                      gated_alone.tensor().rows_from(r, 1));
  }
  EXPECT_TRUE(same_bits(norm, norm_alone));
  EXPECT_TRUE(same_bits(gated, gated_alone));
}

TEST_P(Elementwise, AddAdds) {
  Random random("Elementwise.AddAdds");
  for (const auto& [n, cols] : sizes(random)) {
    Matrix x = Matrix::random(n, cols, random), y = Matrix::random(n, cols, random), before = x;
    backend->add(x.tensor(), y.tensor());
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(x.at(r, c), before.at(r, c) + y.at(r, c));
    }
    EXPECT_TRUE(x.gaps_untouched());
  }
}

TEST_P(Elementwise, ScaleAndSoftCapEqualTheReference) {
  Random random("Elementwise.ScaleAndSoftCapEqualTheReference");
  const float by = 0.3f;
  for (const auto& [n, cols] : sizes(random)) {
    const Matrix before = Matrix::random(n, cols, random, 30);
    for (const float* other : {static_cast<const float*>(nullptr), &by}) {
      Matrix x = before, expected = before;
      backend->scale(x.tensor(), 1.7f, other);
      reference->scale(expected.tensor(), 1.7f, other);
      EXPECT_TRUE(same_bits(x, expected));
      EXPECT_EQ(x.at(0, 0), before.at(0, 0) * (other != nullptr ? 1.7f * by : 1.7f));
    }
    Matrix x = before, expected = before;
    backend->soft_cap(x.tensor(), 8);
    reference->soft_cap(expected.tensor(), 8);
    expect_near(x, expected, 2e-6f, 2e-6f);
    EXPECT_NEAR(x.at(0, 0), 8 * std::tanh(before.at(0, 0) / 8), 1e-5);
  }
}

TEST_P(Elementwise, HeadsAreScaledEachByItsFactor) {
  Random random("Elementwise.HeadsAreScaledEachByItsFactor");
  for (const auto& [n, dim] : sizes(random)) {
    const int64_t heads = random.between(1, 3);
    Matrix x = Matrix::random(n, heads * dim, random, 3),
           factors = Matrix::random(n, heads, random);
    const Matrix before = x;
    backend->scale_heads(x.tensor(), factors.tensor());
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < x.cols(); ++c)
        ASSERT_EQ(x.at(r, c), before.at(r, c) * factors.at(r, c / dim));
    }
    EXPECT_TRUE(x.gaps_untouched());
  }
}

TEST_P(Elementwise, ClampsBetweenBothLimits) {
  Random random("Elementwise.ClampsBetweenBothLimits");
  for (const auto& [n, cols] : sizes(random)) {
    Matrix x = Matrix::random(n, cols, random, 3);
    x.at(0, 0) = std::numeric_limits<float>::quiet_NaN();
    const Matrix before = x;
    backend->clamp(x.tensor(), 1.5f);
    EXPECT_TRUE(std::isnan(x.at(0, 0)));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = r == 0 ? 1 : 0; c < cols; ++c)
        ASSERT_EQ(x.at(r, c), std::clamp(before.at(r, c), -1.5f, 1.5f));
    }
    EXPECT_TRUE(x.gaps_untouched());
  }
}

// Two ranks have some columns of each row.
TEST_P(Elementwise, NormsOfPartsOfRowsEqualThoseOfWholeRows) {
  Random random("Elementwise.NormsOfPartsOfRowsEqualThoseOfWholeRows");
  for (const auto& [n, cols] : sizes(random)) {
    if (cols == 1) continue;
    const int64_t first = cols / 3 + 1;
    StoredWeight w = vector_weight(DType::f32, cols, random);
    Matrix x = Matrix::random(n, cols, random, 3), whole(n, cols), parts = x;
    backend->norm(x.tensor(), w.weight, {.eps = 1e-5f}, whole.tensor());
    Matrix sums[2]{{n, 1}, {n, 1}};
    std::vector<float> all(static_cast<size_t>(n));
    auto columns = [&](int64_t part, Tensor of) {
      return part == 0 ? of.columns(0, first) : of.columns(first, cols - first);
    };
    for (int64_t part : {0, 1}) {
      Matrix expected(n, 1);
      backend->sum_squares(columns(part, x.tensor()), sums[part].tensor());
      reference->sum_squares(columns(part, x.tensor()), expected.tensor());
      expect_near(sums[part], expected, 1e-30f, 1e-5f);
      for (int64_t r = 0; r < n; ++r) all[static_cast<size_t>(r)] += sums[part].at(r, 0);
    }
    for (int64_t part : {0, 1}) {
      Weight weight = w.weight;
      weight.cols = part == 0 ? first : cols - first;
      weight.data += part == 0 ? 0 : first * static_cast<int64_t>(sizeof(float));
      const NormParams params{.eps = 1e-5f, .squares = all.data(), .squares_cols = cols};
      const Tensor y = columns(part, parts.tensor());
      backend->norm(y, weight, params, y);
    }
    expect_near(parts, whole, 1e-30f, 3e-6f);
  }
}

TEST_P(Elementwise, ANormWithoutWeightIsOneOfOnes) {
  Random random("Elementwise.ANormWithoutWeightIsOneOfOnes");
  for (const auto& [n, cols] : sizes(random)) {
    StoredWeight w({DType::f32, WeightLayout::rows, ScaleKind::none}, 1, cols);
    std::fill_n(reinterpret_cast<float*>(w.weight.data), cols, 1.0f);
    Weight none = w.weight;
    none.data = nullptr;
    Matrix x = Matrix::random(n, cols, random, 3), y(n, cols), expected(n, cols);
    backend->norm(x.tensor(), none, {1e-6f}, y.tensor());
    backend->norm(x.tensor(), w.weight, {1e-6f}, expected.tensor());
    EXPECT_TRUE(same_bits(y, expected));
  }
}

TEST_P(Elementwise, ActivationsEqualTheReference) {
  Random random("Elementwise.ActivationsEqualTheReference");
  const std::vector<float> of_xielu{0.4f, -0.7f, 0.5f, -1e-6f};
  const std::vector<Size> all = sizes(random);
  size_t first = 0;
  for (Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                Activation::relu, Activation::relu_squared, Activation::xielu,
                                Activation::sigmoid, Activation::softplus, Activation::identity}) {
    const float* values = activation == Activation::xielu ? of_xielu.data() : nullptr;
    const ActivationParams params{activation, values};
    const bool squares = values != nullptr || activation == Activation::relu_squared;
    const float large = squares ? 1e15f : 1e30f;
    const float extremes[] = {0.0f, -0.0f, large, -large, 90.0f, -90.0f, -88.0f, 1e-30f};
    SCOPED_TRACE(static_cast<int>(activation));
    for (size_t i = first++ % 3; i < all.size(); i += 3) {  // a third of the sizes
      const auto [n, cols] = all[i];
      Matrix gate = Matrix::random(n, cols, random, 4), up = Matrix::random(n, cols, random);
      for (int64_t c = 0; c < std::min<int64_t>(cols, 8); ++c) gate.at(0, c) = extremes[c];
      Matrix out(n, cols), expected(n, cols), plain(n, cols), expected_plain(n, cols);
      backend->activate(params, gate.tensor(), up.tensor(), out.tensor());
      reference->activate(params, gate.tensor(), up.tensor(), expected.tensor());
      backend->activate(params, gate.tensor(), {}, plain.tensor());
      reference->activate(params, gate.tensor(), {}, expected_plain.tensor());
      expect_near(plain, expected_plain, 2e-6f, 2e-6f);
      // 1 + erf cancels where gelu nears zero: the error is absolute, some 1e-7 of |gate up|.
      expect_near(out, expected, 2e-6f, 2e-6f);
      backend->activate(params, gate.tensor(), up.tensor(),
                        gate.tensor());  // in place
      EXPECT_TRUE(same_bits(gate, out));
    }
  }
}

// Limits of both inputs, and values on either side of them.
TEST_P(Elementwise, ActivationsWithALimitEqualTheReference) {
  Random random("Elementwise.ActivationsWithALimitEqualTheReference");
  for (const auto [n, cols] : sizes(random)) {
    Matrix gate = Matrix::random(n, cols, random, 9), up = Matrix::random(n, cols, random, 9);
    for (int64_t c = 0; c < cols; ++c)
      (c % 2 == 0 ? gate : up).at(0, c) = c % 3 == 0 ? 1e30f : -1e30f;
    Matrix out(n, cols), expected(n, cols);
    for (const auto& [kind, limit] : {std::pair{Activation::clamped_swiglu, 7.0f},
                                      {Activation::clamped_swiglu, 2.5f},
                                      {Activation::clamped_silu, 2.5f},
                                      {Activation::silu_clamped, 2.5f}}) {
      const ActivationParams params{.kind = kind, .limit = limit, .alpha = 1.702f};
      backend->activate(params, gate.tensor(), up.tensor(), out.tensor());
      reference->activate(params, gate.tensor(), up.tensor(), expected.tensor());
      expect_near(out, expected, 2e-6f, 2e-6f);
    }
  }
}

TEST_P(Elementwise, StreamsEqualTheReference) {
  Random random("Elementwise.StreamsEqualTheReference");
  for (const auto& [streams, cols, iterations] :
       {std::tuple{4, 70, 20}, {2, 1, 1}, {8, 300, 3}, {1, 5, 2}}) {
    const int64_t n = random.between(1, 5), count = streams * (2 + streams);
    std::vector<float> scales = test::random_vector(3, random),
                       biases = test::random_vector(count, random);
    const StreamMix mix{streams, scales.data(), biases.data(), 1e-6F, 1e-5F, iterations};
    Matrix x = Matrix::random(n, streams * cols, random), logits = Matrix::random(n, count, random);
    Matrix expected_logits = logits, out(n, cols), expected = out;
    backend->read_streams(x.tensor(), mix, logits.tensor(), out.tensor());
    reference->read_streams(x.tensor(), mix, expected_logits.tensor(), expected.tensor());
    expect_near(out, expected, 1e-5F, 1e-5F);
    const Tensor weights = logits.tensor().columns(streams, count - streams);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = streams; c < count; ++c)
        ASSERT_NEAR(logits.at(r, c), expected_logits.at(r, c), 2e-5F);
    Matrix to = x, expected_to = x;
    backend->write_streams(out.tensor(), weights, to.tensor());
    reference->write_streams(out.tensor(), weights, expected_to.tensor());
    expect_near(to, expected_to, 1e-5F, 1e-5F);
    Matrix first = Matrix::random(n, streams, random), expected_first = first;
    backend->read_streams(x.tensor(), mix, first.tensor(), out.tensor());
    reference->read_streams(x.tensor(), mix, expected_first.tensor(), expected.tensor());
    expect_near(out, expected, 1e-5F, 1e-5F);
  }
}

TEST_P(Elementwise, SiluIsPreciseOverItsWholeRange) {
  const int64_t cols = 4001;
  Matrix gate(1, cols), up(1, cols), out(1, cols);
  for (int64_t c = 0; c < cols; ++c) {
    gate.at(0, c) = static_cast<float>(c - 2000) / 25;  // -80 .. 80
    up.at(0, c) = 1;
  }
  backend->activate({Activation::silu}, gate.tensor(), up.tensor(), out.tensor());
  for (int64_t c = 0; c < cols; ++c) {
    const double x = gate.at(0, c), exact = x / (1 + std::exp(-x));
    ASSERT_NEAR(out.at(0, c), exact, std::abs(exact) * 5e-7) << x;
  }
}

TEST_P(Elementwise, RopeRotatesPairs) {
  Random random("Elementwise.RopeRotatesPairs");
  for (auto [head_dim, rope_dim] : {std::pair{64, 64}, {80, 20}, {8, 8}, {112, 56}, {6, 2}}) {
    for (RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
      const int64_t n = random.between(1, 20), heads = random.between(1, 9);
      Matrix x = Matrix::random(n, heads * head_dim, random), before = x, expected = x;
      Matrix cos(n, rope_dim / 2), sin(n, rope_dim / 2);
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t i = 0; i < rope_dim / 2; ++i) {
          const double angle = random.uniform() * 7;
          cos.at(r, i) = static_cast<float>(std::cos(angle));
          sin.at(r, i) = static_cast<float>(std::sin(angle));
        }
      }
      backend->rope(x.tensor(), head_dim, pairing, cos.tensor(), sin.tensor());
      reference->rope(expected.tensor(), head_dim, pairing, cos.tensor(), sin.tensor());
      EXPECT_TRUE(same_bits(x, expected));
      EXPECT_TRUE(x.gaps_untouched());
      for (int64_t d = rope_dim; d < head_dim; ++d) EXPECT_EQ(x.at(0, d), before.at(0, d));
      const int64_t other = pairing == RopePairing::halves ? rope_dim / 2 : 1;
      const double a = before.at(0, 0), b = before.at(0, other);
      EXPECT_NEAR(x.at(0, 0), a * cos.at(0, 0) - b * sin.at(0, 0), 1e-6);
      EXPECT_NEAR(x.at(0, other), b * cos.at(0, 0) + a * sin.at(0, 0), 1e-6);
    }
  }
}

TEST_P(Elementwise, EmbedLooksUpRowsOfEveryScheme) {
  Random random("Elementwise.EmbedLooksUpRowsOfEveryScheme");
  for (int64_t cols : {int64_t{1}, int64_t{300}, random.between(1, 700)}) {
    const Matrix values = Matrix::random(50, cols, random);
    for (const QuantScheme& scheme : element_schemes()) {
      for (DType stored : {DType::f32, DType::f16, DType::bf16}) {
        // A table of plain rows, or one that is a linear layer's weight as well.
        for (WeightLayout layout :
             std::set{WeightLayout::rows, GetParam().layout(scheme, stored)}) {
          StoredWeight table = encoded(scheme, stored, layout, values);
          std::vector<int32_t> ids{0, 49};
          for (int i = 0; i < 9; ++i) ids.push_back(static_cast<int32_t>(random.between(0, 49)));
          Matrix out(11, cols);
          backend->embed(table.weight, ids, out.tensor());
          for (int64_t i = 0; i < 11; ++i) {
            const int64_t id = ids[static_cast<size_t>(i)];
            for (int64_t c = 0; c < cols; ++c) {
              ASSERT_EQ(out.at(i, c), decode_element(table.weight, id, c));
              const float exact = values.at(id, c);
              ASSERT_NEAR(out.at(i, c), exact, std::abs(exact) / 16 + 0.03);
            }
          }
          EXPECT_TRUE(out.gaps_untouched());
        }
      }
    }
  }
}

SLUICE_OVER_EVERY_TARGET(Elementwise);

}  // namespace
}  // namespace sluice
