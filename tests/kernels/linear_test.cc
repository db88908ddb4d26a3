// Linear layers by every target: against float64, and the same bits whatever rows are together.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/linear_support.h"

namespace sluice {
namespace {

using test::Backend;
using test::encoded;
using test::Kind;
using test::kKinds;
using test::Matrix;
using test::Random;
using test::random_vector;
using test::random_weight;
using test::rounded;
using test::StoredWeight;

constexpr Compute kComputes[] = {Compute::bf16, Compute::f32};

WorkspaceNeeds linear_needs(int64_t rows, int64_t cols) { return {rows, cols, 8}; }

class Linear : public test::EveryTarget {
 protected:
  StoredWeight weight(const Kind& kind, int64_t rows, int64_t cols, Random& random) {
    return random_weight(kind, GetParam().layout(kind.scheme(), kind.stored), rows, cols, random);
  }
};

struct LinearSize {
  int64_t rows, cols, n;
};

// Tails of rows and columns, and vectors that fit.
std::vector<LinearSize> sizes(const test::Target& target, Random& random) {
  std::vector<LinearSize> all{
      {16, 128, 1}, {1, 16, 16},
      {33, 272, 2}, {17, 2064, 8},
      {40, 136, 9}, {5, 300, 4},
      {9, 31, 16},  {24, 1, 3},
      {3, 1300, 5}, {random.between(1, 60), 8 * random.between(1, 150), random.between(1, 16)}};
  for (int i = 0; i < target.size(4, 1); ++i)
    all.push_back({random.between(1, 90), random.between(1, 700), random.between(1, 40)});
  return all;
}

TEST_P(Linear, EqualsTheProductInFloat64) {
  Random random("Linear.EqualsTheProductInFloat64");
  int turn = 0;
  for (const auto& [rows, cols, n] : sizes(GetParam(), random)) {
    for (const Kind& kind : kKinds) {
      for (Compute compute : kComputes) {
        // A GPU has one of two: each kind meets both, of other sizes.
        if (GetParam().gpu != nullptr && turn++ / 2 % 2 == static_cast<int>(compute)) continue;
        if (test::leaves_out(random)) continue;
        StoredWeight w = weight(kind, rows, cols, random);
        Matrix x = Matrix::random(n, cols, random), y(n, w.weight.rows);
        const std::vector<float> bias = random_vector(w.weight.rows, random);
        const float* bias_or_null = random.between(0, 1) == 0 ? bias.data() : nullptr;
        Backend backend(GetParam(), compute, linear_needs(n, cols), 2);
        backend->linear(x.tensor(), w.weight, bias_or_null, y.tensor());
        SCOPED_TRACE(fmt::format("{} {} n {} rows {} cols {}", dtype_name(w.weight.format.dtype),
                                 static_cast<int>(kind.group), n, rows, cols));
        expect_product(rounded(x, w.weight.format, compute), w.weight, bias_or_null, y,
                       GetParam().rounding);
        if (HasFatalFailure()) return;
      }
    }
  }
}

Matrix of_columns(const Matrix& x, int64_t columns) {
  Matrix some(x.rows(), columns);
  for (int64_t i = 0; i < x.rows() * columns; ++i)
    some.at(i / columns, i % columns) = x.at(i / columns, i % columns);
  return some;
}

// y as `fusion` says, by an op for each of its parts.
void compute_in_parts(const Backend& backend, Matrix x, const Weight& w, const float* bias,
                      const Fusion& fusion, Matrix& y) {
  if (fusion.norm) backend->norm(x.tensor(), fusion.norm->weight, fusion.norm->params, x.tensor());
  Matrix product(y.rows(), y.cols());
  backend->linear(x.tensor(), w, bias, product.tensor());
  if (fusion.adds) return backend->add(y.tensor(), product.tensor());
  if (fusion.width == 0) {
    y = product;
    return;
  }
  Matrix gate = of_columns(product, fusion.width), factor(y.rows(), fusion.width);
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t c = 0; c < fusion.width; ++c) factor.at(r, c) = product.at(r, fusion.second + c);
  backend->activate(fusion.activation, gate.tensor(), factor.tensor(), gate.tensor());
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t c = 0; c < fusion.width; ++c) y.at(r, c) = gate.at(r, c);
}

// A gate and its factor, whose rows are those of one weight, each from a panel's border on; or a
// sum.
Fusion random_fusion(bool gated, Random& random) {
  constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh,
                                         Activation::clamped_swiglu};
  if (!gated) return {.norm = {}, .activation = {}, .adds = random.one_of(2)};
  const int64_t width = random.between(1, 50);
  return {.norm = {},
          .width = width,
          .second = ceil_div(width, kPanelRows) * kPanelRows,
          .activation = {.kind = kActivations[random.between(0, 2)], .limit = 0.5f, .alpha = 1.7f}};
}

TEST_P(Linear, AFusionHasTheBitsOfItsParts) {
  if (GetParam().gpu == nullptr) GTEST_SKIP() << "only a GPU's kernels fuse";
  Random random("Linear.AFusionHasTheBitsOfItsParts");
  constexpr DType kNorms[] = {DType::f32, DType::f16, DType::bf16};
  int normed = 0;
  for (int turn = 0; turn < 4; ++turn) {
    for (const Kind& kind : kKinds) {
      const bool gated = random.one_of(2), norm = random.one_of(2);
      Fusion fusion = random_fusion(gated, random);
      const int64_t cols = norm || random.one_of(2)
                               ? 8 * random.between(1, GetParam().size(300, 90))
                               : random.between(1, 300);
      const int64_t n = random.between(1, norm ? 2 : 16);
      StoredWeight w =
          weight(kind, gated ? 2 * fusion.second : random.between(1, 90), cols, random);
      StoredWeight norm_weight = encoded({"none"}, kNorms[random.between(0, 2)], WeightLayout::rows,
                                         Matrix::random(1, cols, random));
      if (norm) fusion.norm = {norm_weight.weight, {.eps = 1e-5f, .weight_offset = 1}};
      Backend backend(GetParam(), Compute::bf16, linear_needs(n, cols));
      if (!backend->fuses(w.weight, n, fusion)) continue;
      normed += norm ? 1 : 0;
      SCOPED_TRACE(fmt::format("{} {} n {} rows {} cols {} gated {} norm {} adds {}",
                               dtype_name(kind.codes), static_cast<int>(kind.group), n,
                               w.weight.rows, cols, gated, norm, fusion.adds));
      Matrix x = Matrix::random(n, cols, random), y = Matrix::random(n, w.weight.rows, random);
      Matrix expected = y;
      const std::vector<float> bias = random_vector(w.weight.rows, random);
      const float* bias_or_null = random.one_of(2) ? bias.data() : nullptr;
      compute_in_parts(backend, x, w.weight, bias_or_null, fusion, expected);
      backend->fused_linear(x.tensor(), w.weight, bias_or_null, fusion, y.tensor());
      const int64_t columns = gated ? fusion.width : w.weight.rows;
      EXPECT_TRUE(same_bits(of_columns(y, columns), of_columns(expected, columns)));
      EXPECT_TRUE(y.gaps_untouched());
    }
  }
  EXPECT_GT(normed, 0);
}

// Sums of integers are exact, so that what is made of them has the same bits everywhere.
TEST_P(Linear, Int8GivesTheBitsOfTheReference) {
  Random random("Linear.Int8GivesTheBitsOfTheReference");
  for (const auto& [rows, cols, n] : sizes(GetParam(), random)) {
    const Matrix values = Matrix::random(rows, cols, random);
    auto product = [&](const test::Target& target, Matrix x) {
      StoredWeight w = encoded({.name = "", .group = ScaleGroup::row, .codes = DType::i8},
                               DType::bf16, target.layout({.dtype = DType::i8}), values);
      Matrix y(n, w.weight.rows), of_rows(n, rows);
      Backend(target, Compute::bf16, linear_needs(n, cols))
          ->linear(x.tensor(), w.weight, nullptr, y.tensor());
      for (int64_t i = 0; i < n * rows; ++i)
        of_rows.at(i / rows, i % rows) = y.at(i / rows, i % rows);
      return of_rows;
    };
    const Matrix x = Matrix::random(n, cols, random);
    EXPECT_TRUE(same_bits(product(GetParam(), x), product({Isa::reference}, x)));
  }
}

// The promise on which batching, chunking and preemption rest: bit for bit the same, alone or among
// others, whatever the number of threads.
TEST_P(Linear, ARowDoesNotDependOnOtherRowsOrThreads) {
  Random random("Linear.ARowDoesNotDependOnOtherRowsOrThreads");
  const bool slow = GetParam().gpu != nullptr || GetParam().isa == Isa::reference;
  for (const Kind& kind : kKinds) {
    for (Compute compute : kComputes) {
      if (GetParam().gpu != nullptr && compute == Compute::f32) continue;
      if (test::leaves_out(random, 4)) continue;
      const int64_t n = slow ? 20 : random.between(241, 260);
      const int64_t rows = GetParam().size(48, 35), cols = random.between(500, 640) / 8 * 8;
      StoredWeight w = weight(kind, rows, cols, random);
      Matrix x = Matrix::random(n, cols, random), all(n, w.weight.rows), again = all;
      Backend(GetParam(), compute, linear_needs(n, cols), 1)
          ->linear(x.tensor(), w.weight, nullptr, all.tensor());
      Backend threads(GetParam(), compute, linear_needs(n, cols), 3);
      for (int64_t row = 0; row < n;) {
        const int64_t count = std::min(n - row, random.between(1, 30));
        threads->linear(x.tensor().rows_from(row, count), w.weight, nullptr,
                        again.tensor().rows_from(row, count));
        row += count;
      }
      EXPECT_TRUE(same_bits(all, again)) << dtype_name(w.weight.format.dtype);
      for (int64_t row = 0; row < n; row += 7) {
        threads->linear(x.tensor().rows_from(row, 1), w.weight, nullptr,
                        again.tensor().rows_from(row, 1));
      }
      EXPECT_TRUE(same_bits(all, again)) << dtype_name(w.weight.format.dtype);
    }
  }
}

// All 256 codes, subnormals and on the CPU NaN among them, mean what float8.h says.
TEST_P(Linear, EveryE4M3CodeIsDecodedExactly) {
  for (Compute compute : kComputes) {
    for (int64_t cols : {4, 32}) {
      WeightFormat format = with_layout(GetParam().matrix_layout(),
                                        {.dtype = DType::f8_e4m3, .scales = ScaleKind::per_row});
      StoredWeight w(format, 256, cols);
      std::fill_n(w.weight.scales, 256, 1.0f);
      std::fill_n(w.weight.data, plane_bytes(format, Plane::codes, 256, cols), std::byte{0});
      for (int64_t code = 0; code < 256; ++code) {
        w.weight.data[element_offset(w.weight, code, code % cols)] = static_cast<std::byte>(code);
      }
      for (int64_t rows : {1, 24}) {  // decoded while multiplying, and ahead
        Matrix x(rows, cols), y(rows, 256);
        for (int64_t i = 0; i < rows * cols; ++i) x.at(i / cols, i % cols) = 1;
        Backend(GetParam(), compute, linear_needs(rows, cols))
            ->linear(x.tensor(), w.weight, nullptr, y.tensor());
        for (int64_t i = 0; i < rows * 256; ++i) {
          const int64_t row = i / 256, code = i % 256;
          const float value = e4m3_to_float(static_cast<uint8_t>(code));
          if (std::isnan(value)) {  // which a load refuses; a GPU makes some number of it
            EXPECT_TRUE(std::isnan(y.at(row, code)) || GetParam().gpu != nullptr)
                << row << ' ' << code;
          } else {
            EXPECT_EQ(y.at(row, code), value) << row << ' ' << code;
          }
        }
      }
    }
  }
}

// The largest codes of either sign, in as many columns as may be: no sum overflows or saturates.
TEST_P(Linear, Int8SumsAreExact) {
  const int64_t cols = GetParam().isa == Isa::reference ? 2000 : kMostI8Cols;
  StoredWeight w(
      with_layout(GetParam().matrix_layout(), {.dtype = DType::i8, .scales = ScaleKind::per_row}),
      16, cols);
  const int64_t rows = w.weight.rows;
  std::fill_n(w.weight.scales, rows, 0.5f);
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t c = 0; c < cols; ++c) {
      w.weight.data[element_offset(w.weight, o, c)] =
          std::byte{o % 2 == 0 ? uint8_t{255} : uint8_t{1}};
    }
  }
  Matrix x(2, cols), y(2, rows);
  for (int64_t c = 0; c < cols; ++c) {
    x.at(0, c) = 127;
    x.at(1, c) = -127;
  }
  Backend(GetParam(), Compute::bf16, linear_needs(2, cols))
      ->linear(x.tensor(), w.weight, nullptr, y.tensor());
  const auto sum = static_cast<float>(127 * 127 * cols) * 0.5f;
  for (int64_t o = 0; o < rows; ++o) {
    EXPECT_EQ(y.at(0, o), o % 2 == 0 ? sum : -sum);
    EXPECT_EQ(y.at(1, o), o % 2 == 0 ? -sum : sum);
  }
}

TEST_P(Linear, ARowThatIsNotFiniteSpoilsOnlyItself) {
  Random random("Linear.ARowThatIsNotFiniteSpoilsOnlyItself");
  for (int64_t cols : {48, 70}) {
    for (const Kind& kind : kKinds) {
      StoredWeight w = weight(kind, 16, cols, random);
      Matrix x = Matrix::random(4, cols, random), y(4, 16);
      x.at(1, 40) = std::nanf("");
      x.at(2, 1) = -std::numeric_limits<float>::infinity();
      Backend(GetParam(), Compute::bf16, linear_needs(4, cols))
          ->linear(x.tensor(), w.weight, nullptr, y.tensor());
      const bool codes = kind.quantized_input || kind.codes == DType::i8;
      for (int64_t o = 0; o < 16; ++o) {
        EXPECT_TRUE(std::isfinite(y.at(0, o)) && std::isfinite(y.at(3, o)));
        EXPECT_TRUE(std::isnan(y.at(1, o)));
        EXPECT_TRUE(codes ? std::isnan(y.at(2, o)) : !std::isfinite(y.at(2, o)));
      }
    }
  }
}

TEST_P(Linear, NoRowsIsNoWork) {
  Random random("Linear.NoRowsIsNoWork");
  StoredWeight w = weight(kKinds[0], 16, 8, random);
  Matrix x(0, 8), y(0, 16);
  Backend(GetParam(), Compute::bf16, linear_needs(1, 8))
      ->linear(x.tensor(), w.weight, nullptr, y.tensor());
}

SLUICE_OVER_EVERY_TARGET_AND_TILES(Linear);

}  // namespace
}  // namespace sluice
