// Products of heads with matrices of their own, by every instruction set, in
// all formats.
#include <gtest/gtest.h>

#include <array>

#include "tests/kernels/backend.h"

namespace sluice {
namespace {

using test::Backend;
using test::Matrix;
using test::Random;

class MultiplyHeads : public test::EveryTarget {};

// Sizes of heads that are no whole panels, too.
struct Problem {
  Problem(Random& random, const QuantScheme& scheme, WeightLayout layout)
      : heads(random.between(1, 5)),
        rows(random.between(1, 40)),
        cols(random.one_of(2) ? 8 * random.between(1, 30) : random.between(1, 70)),
        tail(random.between(0, 3)),
        step(rows + tail + random.between(0, 9)),
        latent_step(cols + tail + random.between(0, 9)),
        weight(test::encoded(scheme, DType::bf16, layout,
                             padded(Matrix::random(heads * rows, cols, random)))) {
    if (!random.one_of(3)) return;  // steps of whole vectors
    step = ceil_div(step, 4) * 4;
    latent_step = ceil_div(latent_step, 4) * 4;
  }

  static Matrix padded(const Matrix& of) {
    Matrix whole(ceil_div(of.rows(), kPanelRows) * kPanelRows, of.cols());
    for (int64_t r = 0; r < whole.rows(); ++r)
      for (int64_t c = 0; c < of.cols(); ++c) whole.at(r, c) = r < of.rows() ? of.at(r, c) : 0;
    return whole;
  }
  HeadMatrices matrices() const {
    return {.weight = weight.weight, .heads = heads, .rows = rows, .tail = tail};
  }

  int64_t heads, rows, cols, tail, step, latent_step;
  test::StoredWeight weight;
};

TEST_P(MultiplyHeads, EqualsTheReferenceWhateverTheTilesAndThreads) {
  Random random("MultiplyHeads.EqualsTheReference");
  for (const char* name : {"none", "fp8_per_channel", "fp8_per_block", "int8", "int4_g32"}) {
    SCOPED_TRACE(name);
    const QuantScheme scheme = *find_quant_scheme(name);
    const Problem p(random, scheme, GetParam().layout(scheme, DType::bf16));
    const int64_t most = GetParam().size(67, 19);
    const int64_t n = std::array<int64_t, 3>{1, 7, most}[static_cast<size_t>(random.between(0, 2))];
    const WorkspaceNeeds needs{.max_cols = 1, .head_cols = p.cols, .grouped = true};
    Backend backend(GetParam(), Compute::bf16, needs), threads(GetParam(), Compute::bf16, needs, 3);
    Backend reference(Isa::reference, Compute::bf16, needs);
    for (const HeadProduct product : {HeadProduct::plain, HeadProduct::transposed}) {
      const bool plain = product == HeadProduct::plain;
      const int64_t x_step = plain ? p.step : p.latent_step;
      const int64_t y_step = plain ? p.latent_step : p.step;
      Matrix x = Matrix::random(n, p.heads * x_step, random);
      Matrix y(n, p.heads * y_step), expected = y, tiled = y;
      const HeadMatrices whole = p.matrices();
      backend->multiply_heads(x.tensor(), x_step, whole, product, y.tensor(), y_step);
      reference->multiply_heads(x.tensor(), x_step, whole, product, expected.tensor(), y_step);
      test::expect_near(y, expected, 1e-4f, 1e-4f);
      for (HeadMatrices tile = whole; tile.first_row < p.weight.weight.rows;
           tile.first_row += kPanelRows) {  // a panel a tile
        tile.weight = rows_from(p.weight.weight, tile.first_row);
        tile.weight.rows = kPanelRows;
        threads->multiply_heads(x.tensor(), x_step, tile, product, tiled.tensor(), y_step);
      }
      EXPECT_TRUE(test::same_bits(tiled, y));
      Matrix single(1, p.heads * y_step);
      backend->multiply_heads(x.tensor().rows_from(n - 1, 1), x_step, whole, product,
                              single.tensor(), y_step);
      for (int64_t c = 0; c < single.cols(); ++c) EXPECT_EQ(single.at(0, c), y.at(n - 1, c));
    }
  }
}

SLUICE_OVER_EVERY_TARGET(MultiplyHeads);

}  // namespace
}  // namespace sluice
