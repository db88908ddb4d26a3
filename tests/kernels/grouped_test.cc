// Weights in groups, blocks of GGUF and grouped codes: multiplied and looked up by every target.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "quant/row_codes.h"
#include "tests/kernels/backend.h"
#include "tests/quant/grouped_weights.h"
#include "tests/quant/row_layers.h"

namespace sluice {
namespace {

using test::Backend;
using test::expect_same_planes;
using test::GptqLayer;
using test::kBlockTypes;
using test::Matrix;
using test::StoredWeight;

class Grouped : public test::EveryTarget {};

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

// kernels/grouped_sum.h: every instruction set has the bits of the reference.
bool sums_integers(const test::Target& target, Compute compute, const Weight& w) {
  return target.gpu == nullptr && compute == Compute::bf16 && has_integer_codes(w.format);
}

// A CPU's layers round their inputs to 8 bits where the format says so.
Weight with_rounded_inputs(const Weight& w) {
  Weight rounded = w;
  rounded.format.quantized_input = true;
  return rounded;
}

// The same bits as the reference, with either compute type, among any other rows.
void expect_rounded_product(const test::Target& target, const Weight& w, test::Random& random) {
  if (target.gpu != nullptr || !has_integer_codes(w.format)) return;
  const Weight rounded = with_rounded_inputs(w);
  Matrix x = Matrix::random(target.size(17, 9), w.cols, random);
  for (int64_t c = 0; c < w.cols; ++c) x.at(0, c) *= c % 31 == 0 ? 100.0f : 1e-40f;
  const Matrix expected = product({Isa::reference}, Compute::f32, x, rounded, nullptr);
  for (Compute compute : {Compute::bf16, Compute::f32}) {
    EXPECT_TRUE(test::same_bits(product(target, compute, x, rounded, nullptr), expected));
    for (int64_t count : {1, 2, 3, 5}) {
      const Matrix part = product(target, compute, rows_of(x, 1, count), rounded, nullptr, 2);
      ASSERT_TRUE(test::same_bits(part, rows_of(expected, 1, count)))
          << count << " rows of " << dtype_name(w.format.dtype);
    }
  }
}

// Compares with the reference, which takes the same weight packed; a row's sums are the same among
// any others and with any threads.
void expect_product(const test::Target& target, const Weight& w, const Weight& packed,
                    test::Random& random) {
  const Matrix x = Matrix::random(target.size(29, 16), w.cols, random);
  const std::vector<float> bias = test::random_vector(packed.rows, random);
  const int64_t rows = std::min(w.rows, packed.rows);
  for (Compute compute : {Compute::bf16, Compute::f32}) {
    const Matrix y = product(target, compute, x, w, bias.data());
    const Matrix all = product({Isa::reference}, compute, x, packed, bias.data());
    Matrix expected(x.rows(), w.rows);
    for (int64_t i = 0; i < x.rows() * rows; ++i)
      expected.at(i / rows, i % rows) = all.at(i / rows, i % rows);
    if (sums_integers(target, compute, packed)) {
      EXPECT_TRUE(test::same_bits(y, expected));
    } else {
      test::expect_near(y, expected, test::product_rounding(x, packed), 1e-6f);
    }
    for (int64_t count : {1, 3, 2, 4, 5, 8, 17}) {
      if (count > target.size(17, 3)) break;
      const int64_t first = random.between(0, x.rows() - count);
      const Matrix part = product(target, compute, rows_of(x, first, count), w, bias.data(), 2);
      ASSERT_TRUE(test::same_bits(part, rows_of(y, first, count)))
          << count << " rows of " << dtype_name(w.format.dtype);
    }
  }
}

// A GPU multiplies many rows by what the codes mean, rounded to bf16: by half of 2^-8 at most.
void expect_product_of_many(const test::Target& target, const Weight& w, const Weight& packed,
                            test::Random& random) {
  if (target.gpu == nullptr) return;
  const Matrix x = Matrix::random(18, w.cols, random);
  const Matrix y = product(target, Compute::bf16, x, w, nullptr);
  const Matrix all = product({Isa::reference}, Compute::bf16, x, packed, nullptr);
  Matrix expected(x.rows(), w.rows);
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t o = 0; o < std::min(w.rows, packed.rows); ++o) expected.at(r, o) = all.at(r, o);
  test::expect_near(y, expected, 200 * test::product_rounding(x, packed), 1e-6f);
}

void expect_rows(const test::Target& target, const Weight& w) {
  Backend backend(target, Compute::bf16, needs(2, w.cols));
  const std::vector<int32_t> ids{static_cast<int32_t>(w.rows - 1), 3};
  Matrix found(2, w.cols);
  backend->embed(w, ids, found.tensor());
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t r : {0, 1}) {
    decode_row(w, ids[static_cast<size_t>(r)], row.data());
    for (int64_t c = 0; c < w.cols; ++c) ASSERT_EQ(found.at(r, c), row[static_cast<size_t>(c)]);
  }
}

TEST_P(Grouped, BlocksLikeTheReference) {
  test::Random random("Grouped.BlocksLikeTheReference");
  for (DType type : kBlockTypes) {
    SCOPED_TRACE(dtype_name(type));
    const int64_t rows = GetParam().size(40, 19);
    const int64_t cols =
        block_layout(type).cols == 32 ? GetParam().size(416, 96) : GetParam().size(768, 512);
    const auto blocks = test::random_blocks(type, rows, cols, random);
    auto weight = [&](WeightLayout layout) {
      return test::block_weight(type, layout, rows, cols, blocks);
    };
    const StoredWeight packed = weight(WeightLayout::packed), plain = weight(WeightLayout::rows);
    const bool takes_packed = GetParam().layout_of_groups() == WeightLayout::packed;
    expect_product(GetParam(), takes_packed ? packed.weight : plain.weight, packed.weight, random);
    expect_product_of_many(GetParam(), plain.weight, packed.weight, random);
    expect_rounded_product(GetParam(), packed.weight, random);
    expect_rows(GetParam(), plain.weight);
    if (takes_packed) expect_rows(GetParam(), packed.weight);
  }
}

TEST_P(Grouped, BlocksWithScalesOfRowsLikeTheReference) {
  test::Random random("Grouped.BlocksWithScalesOfRowsLikeTheReference");
  const int64_t rows = GetParam().size(40, 19), cols = GetParam().size(448, 128);
  const auto blocks = test::random_blocks(DType::e2m1_e4m3, rows, cols, random);
  Backend backend(GetParam(), Compute::bf16, {});
  const auto weight = [&](WeightLayout layout, const test::Encode& encode) {
    return test::scaled_blocks(DType::e2m1_e4m3, layout, rows, cols, blocks, 0.37f, encode);
  };
  const StoredWeight packed = weight(WeightLayout::packed, encode_reference);
  const StoredWeight plain = weight(WeightLayout::rows, encode_reference);
  const StoredWeight w = weight(GetParam().layout_of_groups(), [&](const EncodeArgs& args) {
    return backend.encoder->encode(args);
  });
  expect_product(GetParam(), w.weight, packed.weight, random);
  expect_product_of_many(GetParam(), plain.weight, packed.weight, random);
  expect_rows(GetParam(), plain.weight);
}

TEST_P(Grouped, CodesLikeTheReference) {
  test::Random random("Grouped.CodesLikeTheReference");
  for (int bits : {2, 3, 4, 8}) {
    for (int64_t group : {32, 64, 128, 576}) {
      if (GetParam().gpu != nullptr && group > 128) continue;
      const int64_t cols = GetParam().size(576, group == 128 ? 288 : 192);
      const GptqLayer layer(bits, 32, cols, group, group == 64, random);
      const StoredWeight w = layer.weight(GetParam().layout_of_groups(), bits % 2, 3);
      const StoredWeight packed = layer.weight(WeightLayout::packed, bits % 2, 3);
      expect_product(GetParam(), w.weight, packed.weight, random);
      expect_product_of_many(GetParam(), w.weight, packed.weight, random);
      expect_rounded_product(GetParam(), packed.weight, random);
      expect_rows(GetParam(), w.weight);
    }
  }
}

// Every kind of codes, scales and zeros that checkpoints have by rows.
TEST_P(Grouped, RowCodesLikeTheReference) {
  test::Random random("Grouped.RowCodesLikeTheReference");
  const int64_t rows = GetParam().size(40, 19), cols = GetParam().size(416, 96);
  const std::vector<test::RowLayer> layers{
      test::integer_layer(4, 32, true, rows, cols, random),
      test::integer_layer(4, 32, false, rows, cols, random),
      test::integer_layer(4, 128, true, rows, cols, random),
      test::integer_layer(8, 32, false, rows, cols, random),
      test::integer_layer(2, 16, false, rows, cols, random),
      test::integer_layer(3, 32, true, rows, cols, random),
      test::integer_layer(5, 32, true, rows, 137, random),
      test::integer_layer(6, 96, true, rows, cols, random),
      test::padded_layer(3, rows, cols, random),
      test::padded_layer(5, rows, 137, random),
      test::padded_layer(6, rows, 96, random),
      test::float_zeros_layer(1, 64, false, DType::f16, rows, cols, random),
      test::shared_layer(1, 5, 8, rows, cols, random),
      test::shared_layer(2, 3, 32, rows, 137, random),
      test::shared_layer(4, 0, 64, rows, cols, random),
      test::shared_layer(4, 1, 16, rows, 96, random),
      test::ternary_layer(0, rows, cols, random),
      test::ternary_layer(3, rows, 137, random),
      test::across_layer(32, rows, cols, random),
      test::across_layer(96, rows, cols, random),
      test::float_zeros_layer(3, 32, true, DType::bf16, rows, cols, random),
      test::float_zeros_layer(4, 64, true, DType::f16, rows, cols, random),
      test::float_zeros_layer(5, 32, false, DType::bf16, rows, 137, random),
      test::float_zeros_layer(6, 128, true, DType::bf16, rows, cols, random),
      test::float_zeros_layer(8, 32, true, DType::f16, rows, cols, random),
      test::signed_layer(rows, 137, random),
      test::float_layer(CodeTable::e2m1, Outer::none, rows, cols, random),
      test::float_layer(CodeTable::e4m3, Outer::none, rows, cols, random),
      test::float_layer(CodeTable::e2m1, Outer::divides, rows, 112, random),
      test::float_layer(CodeTable::e2m1, Outer::multiplies, rows, cols, random),
      test::table_layer(false, rows, 192, random),
      test::table_layer(true, rows, 136, random),
      test::table_layer(true, rows, 512, random),
      test::ordered_layer(rows, 96, random)};
  Backend backend(GetParam(), Compute::bf16, {});
  for (const test::RowLayer& layer : layers) {
    SCOPED_TRACE(testing::Message() << layer.name << ", " << layer.format.bits << " bits, "
                                    << layer.cols << " columns");
    const WeightLayout layout = GetParam().layout_of_groups();
    const StoredWeight packed = layer.weight(WeightLayout::packed, encode_reference);
    const StoredWeight expected = layer.weight(layout, encode_reference);
    const StoredWeight found =
        layer.weight(layout, [&](const EncodeArgs& args) { return backend.encoder->encode(args); });
    expect_same_planes(found.weight, expected.weight);
    std::vector<float> row(static_cast<size_t>(layer.cols));
    for (int64_t r = 0; r < layer.rows; ++r) {
      decode_row(packed.weight, r, row.data());
      for (int64_t c = 0; c < layer.cols; ++c)
        ASSERT_EQ(row[static_cast<size_t>(c)], layer.value(r, c)) << r << ", " << c;
    }
    expect_product(GetParam(), found.weight, packed.weight, random);
    expect_product_of_many(GetParam(), found.weight, packed.weight, random);
    expect_rounded_product(GetParam(), packed.weight, random);
    expect_rows(GetParam(), found.weight);
  }
}

// A block of any type, or a layer of floats or of a table, of any number of outputs and blocks,
// times 1 to 16 rows: numbers that are no multiples of what kernels take at a time.
TEST_P(Grouped, AnyShapeLikeTheReference) {
  test::Random random("Grouped.AnyShapeLikeTheReference");
  const auto expect = [&](const Weight& w, const Weight& packed) {
    const Matrix x = Matrix::random(random.between(1, 16), w.cols, random);
    SCOPED_TRACE(testing::Message() << x.rows() << " rows times " << w.rows << " x " << w.cols
                                    << " of " << dtype_name(w.format.dtype));
    const Matrix all = product({Isa::reference}, Compute::bf16, x, packed, nullptr);
    Matrix expected(x.rows(), w.rows);
    const int64_t rows = std::min(w.rows, packed.rows);
    for (int64_t i = 0; i < x.rows() * rows; ++i)
      expected.at(i / rows, i % rows) = all.at(i / rows, i % rows);
    test::expect_near(product(GetParam(), Compute::bf16, x, w, nullptr), expected,
                      test::product_rounding(x, packed), 1e-6f);
  };
  const WeightLayout layout = GetParam().layout_of_groups();
  for (int turn = 0; turn < 12; ++turn) {
    const int64_t rows = random.between(1, 50);
    const DType type = kBlockTypes[static_cast<size_t>(random.between(0, kBlockTypes.size() - 1))];
    const int64_t most = 1024 / block_layout(type).cols;
    const int64_t cols = random.between(1, most) * block_layout(type).cols;
    const auto blocks = test::random_blocks(type, rows, cols, random);
    const auto weight = [&](WeightLayout as) {
      return test::block_weight(type, as, rows, cols, blocks);
    };
    expect(weight(layout).weight, weight(WeightLayout::packed).weight);
  }
  for (int turn = 0; turn < 8; ++turn) {
    const int64_t rows = random.between(1, 50), groups = random.between(1, 9);
    const test::RowLayer layer =
        turn % 2 == 0 ? test::table_layer(turn % 4 == 0, rows, groups * 64, random)
        : turn % 4 == 1
            ? test::float_layer(CodeTable::e2m1, Outer::divides, rows, groups * 16, random)
            : test::float_layer(CodeTable::e4m3, Outer::none, rows, groups * 40, random);
    expect(layer.weight(layout, encode_reference).weight,
           layer.weight(WeightLayout::packed, encode_reference).weight);
  }
}

// Rows of a table come some at a time, of which the first and the last may lie within a panel.
TEST_P(Grouped, RowsOfATableMayBeginWithinAPanel) {
  test::Random random("Grouped.RowsOfATableMayBeginWithinAPanel");
  Backend backend(GetParam(), Compute::bf16, {});
  for (Outer outer : {Outer::divides, Outer::multiplies}) {
    const test::RowLayer layer =
        test::float_layer(CodeTable::e2m1, outer, 40, GetParam().size(160, 64), random);
    const StoredWeight found = layer.weight(WeightLayout::rows, [&](const EncodeArgs& args) {
      EncodeStats stats;
      for (const auto& [first, count] : {std::pair{0, 8}, {8, 16}, {24, 4}, {28, 12}}) {
        EncodeArgs some = args;
        some.first_row = first;
        some.rows = count;
        if (args.plane != Plane::outers) some.source += first * args.source_stride;
        stats.add(backend.encoder->encode(some));
      }
      return stats;
    });
    std::vector<float> row(static_cast<size_t>(layer.cols));
    for (int64_t r = 0; r < layer.rows; ++r) {
      decode_row(found.weight, r, row.data());
      for (int64_t c = 0; c < layer.cols; ++c)
        ASSERT_EQ(row[static_cast<size_t>(c)], layer.value(r, c)) << r << ", " << c;
    }
  }
}

// Rows of every size that an input may have: with some that are much larger, small and subnormal
// ones, such as overflow, and such as are not finite.
Matrix unusual_inputs(int64_t cols, test::Random& random) {
  constexpr float kSizes[] = {1, 1e-4f, 1e-20f, 1e-37f, 1e-41f, 1e34f, 0};
  Matrix x(9, cols);
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const bool outlier = random.between(0, 50) == 0;
      x.at(r, c) = random.normal(r < 7 ? kSizes[r] : 1) * (outlier ? 3000.0f : 1);
    }
  }
  x.at(7, cols / 2) = -INFINITY;
  x.at(8, cols - 1) = NAN;
  return x;
}

void expect_bits_of_the_reference(const test::Target& target, const Weight& w,
                                  test::Random& random) {
  const Matrix x = unusual_inputs(w.cols, random);
  const Matrix expected = product({Isa::reference}, Compute::bf16, x, w, nullptr);
  const auto compare = [&](const Matrix& y, int64_t first) {
    for (int64_t r = 0; r < y.rows(); ++r) {
      for (int64_t o = 0; o < w.rows; ++o) {
        const float a = y.at(r, o), b = expected.at(first + r, o);
        ASSERT_TRUE((std::isnan(a) && std::isnan(b)) ||
                    std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b))
            << "row " << first + r << ", output " << o << ": " << a << ", not " << b;
      }
    }
  };
  compare(product(target, Compute::bf16, x, w, nullptr), 0);
  for (int64_t r = 0; r < x.rows(); ++r)
    compare(product(target, Compute::bf16, rows_of(x, r, 1), w, nullptr), r);
  EXPECT_TRUE(std::isnan(expected.at(7, 0)) && std::isnan(expected.at(8, 0)));
}

TEST_P(Grouped, UnusualInputsHaveTheBitsOfTheReference) {
  if (GetParam().gpu != nullptr) GTEST_SKIP() << "a GPU sums floats";
  test::Random random("Grouped.UnusualInputsHaveTheBitsOfTheReference");
  for (DType type : kBlockTypes) {
    SCOPED_TRACE(dtype_name(type));
    const int64_t cols = block_layout(type).cols == 32 ? 352 : 768;
    const auto blocks = test::random_blocks(type, 32, cols, random);
    const StoredWeight w = test::block_weight(type, WeightLayout::packed, 32, cols, blocks);
    expect_bits_of_the_reference(GetParam(), w.weight, random);
  }
  // Groups that neither divide a block of 256 columns nor are whole ones, and columns between.
  for (int bits : {2, 4, 5, 6, 8}) {
    for (int64_t group : {8, 32, 96, 320, 512}) {
      SCOPED_TRACE(testing::Message() << bits << " bits in groups of " << group);
      const bool symmetric = group == 96 || bits == 5 || bits == 6;
      const test::RowLayer layer = test::integer_layer(bits, group, symmetric, 32, 600, random);
      const StoredWeight w = layer.weight(WeightLayout::packed, encode_reference);
      expect_bits_of_the_reference(GetParam(), w.weight, random);
    }
  }
}

// Several blocks of rows, and tiles of as many rows as there are registers for.
TEST_P(Grouped, ManyRowsHaveTheBitsOfEachAlone) {
  if (GetParam().gpu != nullptr) GTEST_SKIP() << "a GPU multiplies many rows in another way";
  test::Random random("Grouped.ManyRowsHaveTheBitsOfEachAlone");
  const auto expect = [&](const Weight& w) {
    for (int64_t rows : {11, 12, 23, 301}) {
      const Matrix x = Matrix::random(rows, w.cols, random);
      const Matrix y = product(GetParam(), Compute::bf16, x, w, nullptr, 2);
      for (int64_t r : {int64_t{0}, rows / 2, rows * 7 / 8, rows - 1})
        ASSERT_TRUE(test::same_bits(
            rows_of(y, r, 1), product(GetParam(), Compute::bf16, rows_of(x, r, 1), w, nullptr)))
            << "row " << r << " of " << rows;
    }
  };
  for (DType type : {DType::q4_k, DType::q4_0, DType::q6_k, DType::q8_0, DType::iq2_xs}) {
    SCOPED_TRACE(dtype_name(type));
    const auto blocks = test::random_blocks(type, 112, 512, random);
    expect(test::block_weight(type, WeightLayout::packed, 112, 512, blocks).weight);
  }
  for (int64_t group : {16, 32, 128}) {
    SCOPED_TRACE(testing::Message() << "groups of " << group);
    expect(test::integer_layer(4, group, false, 112, 416, random)
               .weight(WeightLayout::packed, encode_reference)
               .weight);
  }
}

TEST_P(Grouped, ARowThatIsNotFiniteSpoilsOnlyItself) {
  test::Random random("Grouped.ARowThatIsNotFiniteSpoilsOnlyItself");
  const auto blocks = test::random_blocks(DType::q4_k, 16, 512, random);
  const StoredWeight w =
      test::block_weight(DType::q4_k, GetParam().layout_of_groups(), 16, 512, blocks);
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

SLUICE_OVER_EVERY_TARGET(Grouped);

}  // namespace
}  // namespace sluice
