// Linear layers of weights in groups: blocks of GGUF and grouped codes.
#include <algorithm>
#include <cmath>

#include "tests/kernels/backend.h"
#include "tests/quant/grouped_weights.h"

namespace sluice {
namespace {

using test::Backend;
using test::GptqLayer;
using test::kBlockTypes;
using test::Matrix;
using test::StoredWeight;

class Grouped : public test::EveryIsa {};

WorkspaceNeeds needs(int64_t rows, int64_t cols) {
  WorkspaceNeeds all{rows, cols, 64};
  all.grouped = true;
  return all;
}

Matrix product(const test::Target& target, Compute compute, Matrix x, const Weight& w,
               const float* bias, int threads = 1) {
  Backend backend(target, compute, needs(x.rows(), x.cols()), threads);
  Matrix y(x.rows(), w.rows);
  backend->linear(x.tensor(), w, bias, y.tensor());
  return y;
}

Matrix rows_of(const Matrix& x, int64_t first, int64_t count) {
  Matrix part(count, x.cols());
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < x.cols(); ++c) part.at(r, c) = x.at(first + r, c);
  return part;
}

// As the reference; and a row's sums are the same among any others and with any threads.
void expect_product(const test::Target& target, const Weight& w, test::Random& random) {
  const Matrix x = Matrix::random(29, w.cols, random);
  std::vector<float> bias(static_cast<size_t>(w.rows));
  for (float& b : bias) b = random.normal();
  for (Compute compute : {Compute::bf16, Compute::f32}) {
    const Matrix y = product(target, compute, x, w, bias.data());
    const Matrix expected = product({Isa::reference}, compute, x, w, bias.data());
    test::expect_near(y, expected, test::product_rounding(x, w), 1e-6f);
    for (int64_t count : {1, 2, 3, 4, 5, 8, 17}) {
      const int64_t first = random.between(0, x.rows() - count);
      const Matrix part = product(target, compute, rows_of(x, first, count), w, bias.data(), 2);
      ASSERT_TRUE(test::same_bits(part, rows_of(y, first, count)))
          << count << " rows of " << dtype_name(w.format.dtype);
    }
  }
}

TEST_P(Grouped, BlocksLikeTheReference) {
  test::Random random("blocks");
  for (DType type : kBlockTypes) {
    const int64_t cols = block_layout(type).cols == 32 ? 416 : 768;
    const auto blocks = test::random_blocks(type, 40, cols, random);
    const StoredWeight w = test::block_weight(type, WeightLayout::packed, 40, cols, blocks);
    expect_product(GetParam(), w.weight, random);
  }
}

TEST_P(Grouped, CodesLikeTheReference) {
  test::Random random("grouped codes");
  for (int bits : {2, 3, 4, 8}) {
    for (int64_t group : {32, 64, 128, 576}) {
      const GptqLayer layer(bits, 32, 576, group, group == 64, random);
      expect_product(GetParam(), layer.weight(WeightLayout::packed, bits % 2, 3).weight, random);
    }
  }
}

TEST_P(Grouped, LooksUpAnyRow) {
  test::Random random("rows");
  const auto blocks = test::random_blocks(DType::q6_k, 40, 256, random);
  const StoredWeight w = test::block_weight(DType::q6_k, WeightLayout::packed, 40, 256, blocks);
  const StoredWeight plain = test::block_weight(DType::q6_k, WeightLayout::rows, 40, 256, blocks);
  Backend backend(GetParam(), Compute::bf16, needs(3, 256));
  const std::vector<int32_t> ids{39, 0, 17};
  Matrix packed(3, 256), rows(3, 256);
  backend->embed(w.weight, ids, packed.tensor());
  backend->embed(plain.weight, ids, rows.tensor());
  EXPECT_TRUE(test::same_bits(packed, rows));
  std::vector<float> row(256);
  decode_row(w.weight, 17, row.data());
  for (int64_t c = 0; c < 256; ++c) EXPECT_EQ(rows.at(2, c), row[static_cast<size_t>(c)]);
}

TEST_P(Grouped, ARowThatIsNotFiniteSpoilsOnlyItself) {
  test::Random random("not finite");
  const auto blocks = test::random_blocks(DType::q4_k, 16, 512, random);
  const StoredWeight w = test::block_weight(DType::q4_k, WeightLayout::packed, 16, 512, blocks);
  Matrix x = Matrix::random(6, 512, random);
  const Matrix y = product(GetParam(), Compute::bf16, x, w.weight, nullptr);
  x.at(3, 100) = INFINITY;
  const Matrix spoilt = product(GetParam(), Compute::bf16, x, w.weight, nullptr);
  for (int64_t r = 0; r < 6; ++r) {
    if (r == 3) {
      EXPECT_FALSE(std::isfinite(spoilt.at(r, 0)));
    } else {
      EXPECT_TRUE(test::same_bits(rows_of(y, r, 1), rows_of(spoilt, r, 1)));
    }
  }
}

SLUICE_OVER_EVERY_ISA(Grouped);

}  // namespace
}  // namespace sluice
