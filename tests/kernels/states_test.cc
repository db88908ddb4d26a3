// Convolutions and recurrences by every target: against the reference, against float64 by their
// definition, and the same bits however a sequence is divided.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/backend.h"
#include "tests/kernels/state_problem.h"

namespace sluice {
namespace {

using test::Backend;
using test::Matrix;
using test::Random;
using test::StateStep;

class States : public test::EveryTarget {};

std::vector<float> random_floats(size_t count, Random& random, float sigma = 1) {
  return test::random_vector(static_cast<int64_t>(count), random, sigma);
}

std::byte* bytes_of(std::vector<float>& floats) {
  return reinterpret_cast<std::byte*>(floats.data());
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

// The rows and first positions of each sequence: new ones and old ones, with a prompt among them or
// not, with fewer rows than a convolution's width, and more.
const std::vector<std::pair<int64_t, int64_t>> kSteps[] = {
    {{1, 7}, {20, 0}, {2, 0}, {1, 0}, {5, 9}}, {{1, 7}, {2, 0}, {1, 0}, {9, 40}}};

struct ConvSize {
  int64_t cols, width, page_rows, first_row;
};

TEST_P(States, ConvolutionsEqualTheReference) {
  Random random("States.ConvolutionsEqualTheReference");
  Backend reference(Isa::reference, Compute::f32, {});
  for (const ConvSize& size : {ConvSize{1, 2, 1, 0},
                               {17, 3, 4, 3},
                               {300, 4, 2, 1},
                               {random.between(1, 700), 5, 8, 2},
                               {40, 16, 6, 5}}) {
    for (const auto& sequences : kSteps) {
      SCOPED_TRACE(testing::Message() << size.cols << " columns, width " << size.width);
      StateStep step(test::state_cache(size.width - 1, size.cols, size.page_rows, size.first_row),
                     sequences);
      Backend backend(GetParam(), Compute::f32, step.needs(), 2);
      std::vector<float> weight =
          random_floats(static_cast<size_t>(size.cols * size.width), random);
      std::vector<float> bias = random_floats(static_cast<size_t>(size.cols), random);
      for (bool silu : {false, true}) {
        const ConvParams params{.weight = weight.data(),
                                .bias = silu ? bias.data() : nullptr,
                                .width = size.width,
                                .silu = silu};
        std::vector<float> state = random_floats(step.floats(), random);
        std::vector<float> expected_state = state, again = state;
        Matrix x = Matrix::random(step.rows(), size.cols, random), y(step.rows(), size.cols);
        Matrix expected = y;
        reference->causal_conv(x.tensor(), params, step.in(bytes_of(expected_state)),
                               expected.tensor());
        backend->causal_conv(x.tensor(), params, step.in(bytes_of(state)), y.tensor());
        test::expect_near(y, expected, 2e-5F, 1e-5F);
        EXPECT_EQ(state, expected_state);
        backend->causal_conv(x.tensor(), params, step.in(bytes_of(again)), x.tensor());  // in place
        EXPECT_TRUE(same_bits(x, y));
        EXPECT_EQ(again, state);
      }
    }
  }
}

// Tests the definition: y[t] = b + sum of w[j] x[t - 2 + j].
TEST_P(States, AConvolutionOfThree) {
  StateStep step(test::state_cache(2, 1, 2, 0), {{3, 0}});
  Backend backend(GetParam(), Compute::f32, step.needs());
  std::vector<float> state(step.floats(), 99), weight{100, 10, 1}, bias{0.5F};
  Matrix x(3, 1), y(3, 1);
  for (int64_t r = 0; r < 3; ++r) x.at(r, 0) = static_cast<float>(r + 1);
  backend->causal_conv(x.tensor(), {.weight = weight.data(), .bias = bias.data(), .width = 3},
                       step.in(bytes_of(state)), y.tensor());
  EXPECT_EQ(y.at(0, 0), 1.5F);
  EXPECT_EQ(y.at(1, 0), 12.5F);
  EXPECT_EQ(y.at(2, 0), 123.5F);
  EXPECT_EQ(state[0], 2);
  EXPECT_EQ(state[1], 3);
}

// Windows that end within a step, at its end, and behind it; old ones go on.
TEST_P(States, PoolsEqualTheReference) {
  Random random("States.PoolsEqualTheReference");
  Backend reference(Isa::reference, Compute::f32, {});
  for (const auto& [cols, tokens, overlaps] :
       {std::tuple{1, 3, false}, {140, 8, false}, {37, 4, true}, {130, 2, true}}) {
    for (const auto& sequences : kSteps) {
      PoolParams params{.tokens = tokens, .overlaps = overlaps};
      StateStep step(test::state_cache(params.state_rows(), cols, 4, 3), sequences);
      Backend backend(GetParam(), Compute::f32, step.needs(), 2);
      const int64_t width = overlaps ? 2 * cols : cols;
      const std::vector<float> bias = random_floats(static_cast<size_t>(tokens * width), random);
      params.bias = bias.data();
      std::vector<float> state = random_floats(step.floats(), random);
      for (float& x : state) x = std::abs(x);
      std::vector<float> expected_state = state;
      Matrix values = Matrix::random(step.rows(), width, random);
      Matrix gates = Matrix::random(step.rows(), width, random, 3);
      Matrix out(step.rows(), cols), expected = out;
      reference->pool(values.tensor(), gates.tensor(), params, step.in(bytes_of(expected_state)),
                      expected.tensor());
      backend->pool(values.tensor(), gates.tensor(), params, step.in(bytes_of(state)),
                    out.tensor());
      test::expect_near(out, expected, 1e-5F, 1e-5F);
      expect_near(state, expected_state, 1e-4F);
    }
  }
}

// Tests the definition with two windows of two tokens: the first part of a token counts in the
// window behind its own.
TEST_P(States, AnOverlappingPool) {
  const PoolParams of{.tokens = 2, .overlaps = true};
  StateStep step(test::state_cache(of.state_rows(), 1, 9, 0), {{4, 0}});
  Backend backend(GetParam(), Compute::f32, step.needs());
  std::vector<float> state(step.floats(), 99), bias(4, 0);
  PoolParams params = of;
  params.bias = bias.data();
  Matrix values(4, 2), gates(4, 2), out(4, 1);
  for (int64_t r = 0; r < 4; ++r) {
    values.at(r, 0) = static_cast<float>(100 * (r + 1));
    values.at(r, 1) = static_cast<float>(r + 1);
  }
  backend->pool(values.tensor(), gates.tensor(), params, step.in(bytes_of(state)), out.tensor());
  EXPECT_EQ(out.at(0, 0), 0);
  EXPECT_FLOAT_EQ(out.at(1, 0), 1.5F);
  EXPECT_EQ(out.at(2, 0), 0);
  EXPECT_FLOAT_EQ(out.at(3, 0), (100 + 200 + 3 + 4) / 4.0F);
}

TEST_P(States, DecaysEqualTheReference) {
  Random random("States.DecaysEqualTheReference");
  Backend reference(Isa::reference, Compute::f32, {});
  Backend backend(GetParam(), Compute::f32, {.max_rows = 8, .max_cols = 8}, 2);
  const int64_t heads = random.between(1, 14);
  const std::vector<float> rates = random_floats(static_cast<size_t>(heads), random);
  const std::vector<float> bias = random_floats(static_cast<size_t>(3 * heads), random, 3);
  for (DecayParams params : {DecayParams{.least = 0.01F, .most = 1.5F}, DecayParams{.least = 0.01F},
                             DecayParams{.negative_rates = true, .most = 1.5F},
                             DecayParams{.of_head = 3}, DecayParams{.of_head = 2, .floor = -5}}) {
    params.log_rates = rates.data();
    params.bias = bias.data();
    const int64_t cols = heads * params.of_head;
    Matrix steps = Matrix::random(7, cols, random, 10), expected_steps = steps;
    Matrix decays(7, cols), expected(7, cols);
    Matrix alone = steps;
    reference->decay(expected_steps.tensor(), params, expected.tensor());
    backend->decay(steps.tensor(), params, decays.tensor());
    test::expect_near(steps, expected_steps, 1e-6F, 1e-6F);
    test::expect_near(decays, expected, 1e-6F, 1e-5F);
    backend->decay(alone.tensor(), params, alone.tensor());
    EXPECT_TRUE(same_bits(alone, decays));
  }
}

struct ScanSize {
  int64_t key_heads, heads, key_dim, value_dim, page_rows, first_row;
};

// Inputs as models have them: keys of length 1, decays and steps between 0 and 1.
struct ScanProblem {
  ScanProblem(const ScanSize& s, int64_t rows, Random& random)
      : queries(Matrix::random(rows, s.key_heads * s.key_dim, random)),
        keys(Matrix::random(rows, s.key_heads * s.key_dim, random)),
        values(Matrix::random(rows, s.heads * s.value_dim, random)),
        decays(rows, s.heads),
        row_decays(rows, s.heads * s.key_dim),
        steps(rows, s.heads),
        skip(random_floats(static_cast<size_t>(s.heads), random)) {
    const float length = 1 / std::sqrt(static_cast<float>(s.key_dim));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < keys.cols(); ++c) keys.at(r, c) *= length;
      for (int64_t h = 0; h < s.heads; ++h) {
        decays.at(r, h) = static_cast<float>(random.uniform());
        steps.at(r, h) = static_cast<float>(random.uniform());
      }
      for (int64_t c = 0; c < row_decays.cols(); ++c)
        row_decays.at(r, c) = static_cast<float>(random.uniform());
    }
  }
  ScanInputs inputs(int64_t row, int64_t rows, bool of_rows = false) {
    auto part = [&](Matrix& m) { return m.tensor().rows_from(row, rows); };
    return {part(queries), part(keys), part(values), part(of_rows ? row_decays : decays),
            part(steps)};
  }
  Matrix queries, keys, values, decays, row_decays, steps;
  std::vector<float> skip;
};

std::vector<ScanSize> scan_sizes(const test::Target& target, Random& random) {
  std::vector<ScanSize> sizes{{1, 1, 1, 1, 1, 0}, {2, 4, 16, 32, 64, 0}, {1, 3, 7, 70, 5, 2}};
  if (target.gpu != nullptr) return sizes;
  sizes.push_back({2, 2, 5, 129, 100, 40});
  sizes.push_back({random.between(1, 3), 6, random.between(1, 40), random.between(1, 90), 11, 3});
  return sizes;
}

TEST_P(States, RecurrencesEqualTheReference) {
  Random random("States.RecurrencesEqualTheReference");
  Backend reference(Isa::reference, Compute::f32, {});
  for (const ScanSize& s : scan_sizes(GetParam(), random)) {
    for (const auto& sequences : kSteps) {
      SCOPED_TRACE(testing::Message()
                   << s.heads << " heads of " << s.key_dim << ", " << s.value_dim);
      StateStep step(test::state_cache(s.heads * s.key_dim, s.value_dim, s.page_rows, s.first_row),
                     sequences);
      Backend backend(GetParam(), Compute::f32, step.needs(s.key_dim), 2);
      for (const auto& [delta, of_rows, tiled] : {std::tuple(false, false, false),
                                                  {true, false, false},
                                                  {true, true, false},
                                                  {true, false, true}}) {
        ScanProblem problem(s, step.rows(), random);
        std::vector<float> state = random_floats(step.floats(), random);
        std::vector<float> expected_state = state, again = state;
        const ScanParams params{.key_dim = s.key_dim,
                                .tiled = tiled,
                                .delta = delta,
                                .decays_rows = of_rows,
                                .skip = delta ? nullptr : problem.skip.data()};
        const ScanInputs inputs = problem.inputs(0, step.rows(), of_rows);
        Matrix out(step.rows(), s.heads * s.value_dim), expected = out;
        reference->scan(inputs, params, step.in(bytes_of(expected_state)), expected.tensor());
        backend->scan(inputs, params, step.in(bytes_of(state)), out.tensor());
        test::expect_near(out, expected, 1e-4F, 1e-5F);
        expect_near(state, expected_state, 1e-4F);
        backend->scan(inputs, params, step.in(bytes_of(again)), inputs.values);  // in place
        EXPECT_TRUE(same_bits(problem.values, out));
        EXPECT_EQ(again, state);
      }
    }
  }
}

// Compares with the formula in float64: S = a S; S += k (b (v - S^T k))^T; out = S^T q.
TEST_P(States, TheDeltaRuleByItsDefinition) {
  Random random("States.TheDeltaRuleByItsDefinition");
  const ScanSize s{1, 1, 9, 18, 9, 0};
  constexpr int64_t kRows = 50;
  StateStep step(test::state_cache(s.key_dim, s.value_dim, s.page_rows, 0), {{kRows, 0}});
  Backend backend(GetParam(), Compute::f32, step.needs(s.key_dim), 1);
  ScanProblem p(s, kRows, random);
  std::vector<float> state(step.floats());
  Matrix out(kRows, s.value_dim);
  backend->scan(p.inputs(0, kRows), {.key_dim = s.key_dim, .delta = true}, step.in(bytes_of(state)),
                out.tensor());
  for (int64_t v = 0; v < s.value_dim; ++v) {
    std::vector<double> exact(static_cast<size_t>(s.key_dim));
    for (int64_t r = 0; r < kRows; ++r) {
      double known = 0, result = 0;
      for (int64_t k = 0; k < s.key_dim; ++k) {
        exact[static_cast<size_t>(k)] *= p.decays.at(r, 0);
        known += exact[static_cast<size_t>(k)] * p.keys.at(r, k);
      }
      for (int64_t k = 0; k < s.key_dim; ++k) {
        exact[static_cast<size_t>(k)] +=
            p.keys.at(r, k) * (p.steps.at(r, 0) * (p.values.at(r, v) - known));
        result += exact[static_cast<size_t>(k)] * p.queries.at(r, k);
      }
      ASSERT_NEAR(out.at(r, v), result, 1e-5) << r;
    }
  }
}

struct SelectiveSize {
  int64_t channels, key_dim, page_rows, first_row;
};

// Inputs as models have them: softplus of the steps is small or some, and rates are above a half.
struct SelectiveProblem {
  SelectiveProblem(const SelectiveSize& s, int64_t rows, Random& random)
      : queries(Matrix::random(rows, s.key_dim, random)),
        keys(Matrix::random(rows, s.key_dim, random)),
        values(Matrix::random(rows, s.channels, random)),
        steps(Matrix::random(rows, s.channels, random, 4)),
        rates(random_floats(static_cast<size_t>(s.channels * s.key_dim), random)),
        skip(random_floats(static_cast<size_t>(s.channels), random)) {}
  SelectiveInputs inputs(int64_t row, int64_t rows) {
    auto part = [&](Matrix& m) { return m.tensor().rows_from(row, rows); };
    return {part(queries), part(keys), part(values), part(steps)};
  }
  SelectiveParams params() const {
    return {.log_rates = rates.data(), .negative_rates = negative_rates, .skip = skip.data()};
  }
  bool negative_rates = false;
  Matrix queries, keys, values, steps;
  std::vector<float> rates, skip;
};

TEST_P(States, SelectiveScansEqualTheReference) {
  Random random("States.SelectiveScansEqualTheReference");
  Backend reference(Isa::reference, Compute::f32, {});
  for (const SelectiveSize& s : {SelectiveSize{1, 1, 1, 0},
                                 {64, 16, 32, 0},
                                 {70, 7, 5, 2},
                                 {19, kMostSelectiveKeys, 100, 40},
                                 {random.between(1, GetParam().size(300, 100)),
                                  random.between(1, GetParam().size(40, 20)), 7, 3}}) {
    for (const auto& sequences : kSteps) {
      SCOPED_TRACE(testing::Message() << s.channels << " channels of " << s.key_dim);
      StateStep step(test::state_cache(s.key_dim, s.channels, s.page_rows, s.first_row), sequences);
      Backend backend(GetParam(), Compute::f32, step.needs(s.key_dim), 2);
      SelectiveProblem problem(s, step.rows(), random);
      problem.negative_rates = step.rows() > 3;
      for (float& rate : problem.rates) rate = problem.negative_rates ? -std::exp(rate) : rate;
      const std::vector<float> before = random_floats(step.floats(), random);
      std::vector<float> state = before, expected_state = before;
      const SelectiveInputs inputs = problem.inputs(0, step.rows());
      Matrix out(step.rows(), s.channels), expected = out;
      reference->selective_scan(inputs, problem.params(), step.in(bytes_of(expected_state)),
                                expected.tensor());
      backend->selective_scan(inputs, problem.params(), step.in(bytes_of(state)), out.tensor());
      test::expect_near(out, expected, 2e-4F, 2e-5F);
      expect_near(state, expected_state, 1e-4F);
      for (Matrix* place : {&problem.values, &problem.steps}) {  // in place
        const Matrix input = *place;
        std::vector<float> again = before;
        backend->selective_scan(inputs, problem.params(), step.in(bytes_of(again)),
                                place->tensor());
        EXPECT_TRUE(same_bits(*place, out));
        EXPECT_EQ(again, state);
        *place = input;
      }
    }
  }
}

// Computes in float64 one channel whose rates are 1 and 3, with steps from nothing to a whole
// token.
TEST_P(States, ASelectiveScanByItsDefinition) {
  constexpr int64_t kRows = 40;
  Random random("States.ASelectiveScanByItsDefinition");
  SelectiveProblem p({1, 2, 2, 0}, kRows, random);
  p.rates = {0, std::log(3.0F)};
  for (int64_t r = 0; r < kRows; ++r) p.steps.at(r, 0) = static_cast<float>(2 * r) - 50;
  StateStep step(test::state_cache(2, 1, 2, 0), {{kRows, 0}});
  Backend backend(GetParam(), Compute::f32, step.needs(2));
  std::vector<float> state(step.floats(), 7);
  Matrix out(kRows, 1);
  backend->selective_scan(p.inputs(0, kRows), p.params(), step.in(bytes_of(state)), out.tensor());
  double exact[2] = {0, 0};
  for (int64_t r = 0; r < kRows; ++r) {
    const double length = std::log1p(std::exp(double{p.steps.at(r, 0)}));
    double result = double{p.skip[0]} * p.values.at(r, 0), changed = 0;
    for (int64_t k = 0; k < 2; ++k) {
      exact[k] = std::exp(-(k == 0 ? 1 : 3) * length) * exact[k] +
                 length * p.values.at(r, 0) * p.keys.at(r, k);
      changed += std::fabs(exact[k] * p.queries.at(r, k));
      result += exact[k] * p.queries.at(r, k);
    }
    ASSERT_NEAR(out.at(r, 0), result, 2e-6 * (changed + std::fabs(p.skip[0] * p.values.at(r, 0))))
        << r;
  }
}

// The output and the last state of `rows` rows, of which at most `most` are computed together:
// scan(backend, first row, rows, state, out).
template <class Scan>
std::pair<Matrix, std::vector<float>> in_steps(const test::Target& target, const StateCache& cache,
                                               int64_t rows, int64_t most, int threads, Matrix out,
                                               int64_t key_dim, Scan scan) {
  std::vector<float> state;
  for (int64_t at = 0; at < rows; at += most) {
    const int64_t count = std::min(most, rows - at);
    StateStep step(cache, {{count, at}});
    Backend backend(target, Compute::f32, step.needs(key_dim), threads);
    state.resize(step.floats(), 3);
    scan(backend, at, count, step.in(bytes_of(state)), out.tensor().rows_from(at, count));
  }
  return {out, state};
}

TEST_P(States, SameBitsHoweverASelectiveScanIsDivided) {
  Random random("States.SameBitsHoweverASelectiveScanIsDivided");
  const SelectiveSize s{GetParam().size(150, 40), 13, 5, 2};
  const int64_t all_rows = GetParam().size(33, 20);
  const StateCache cache = test::state_cache(s.key_dim, s.channels, s.page_rows, s.first_row);
  SelectiveProblem problem(s, all_rows, random);
  auto run = [&](int64_t most, int threads) {
    return in_steps(
        GetParam(), cache, all_rows, most, threads, Matrix(all_rows, s.channels), s.key_dim,
        [&](const Backend& backend, int64_t at, int64_t rows, const StateRows& state,
            const Tensor& out) {
          backend->selective_scan(problem.inputs(at, rows), problem.params(), state, out);
        });
  };
  const auto [whole, last] = run(all_rows, 1);
  for (int64_t most : {1, 7, 16}) {
    const auto [out, state] = run(most, 3);
    EXPECT_TRUE(same_bits(out, whole)) << most;
    EXPECT_EQ(state, last);
  }
}

// Token by token, in chunks, beside other sequences, by one thread or more.
TEST_P(States, SameBitsHoweverASequenceIsDivided) {
  Random random("States.SameBitsHoweverASequenceIsDivided");
  const ScanSize s{2, 4, 12, 21, 17, 5};
  const int64_t all_rows = GetParam().size(33, 20);
  const StateCache cache = test::state_cache(s.heads * s.key_dim, s.value_dim, 17, 5);
  for (const auto& [delta, of_rows] : {std::pair(false, false), {true, false}, {true, true}}) {
    ScanProblem problem(s, all_rows, random);
    const ScanParams params{.key_dim = s.key_dim, .delta = delta, .decays_rows = of_rows};
    auto run = [&](int64_t most, int threads) {
      return in_steps(GetParam(), cache, all_rows, most, threads,
                      Matrix(all_rows, s.heads * s.value_dim), s.key_dim,
                      [&](const Backend& backend, int64_t at, int64_t rows, const StateRows& state,
                          const Tensor& out) {
                        backend->scan(problem.inputs(at, rows, params.decays_rows), params, state,
                                      out);
                      });
    };
    const auto [whole, last] = run(all_rows, 1);
    for (int64_t most : {1, 7, 16}) {
      const auto [out, state] = run(most, 3);
      EXPECT_TRUE(same_bits(out, whole)) << most;
      EXPECT_EQ(state, last);
    }
  }
}

SLUICE_OVER_EVERY_TARGET(States);

}  // namespace
}  // namespace sluice
