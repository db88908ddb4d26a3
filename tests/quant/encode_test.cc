#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quant/float8.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using test::Random;
using test::StoredWeight;

constexpr WeightLayout kLayouts[] = {WeightLayout::rows, WeightLayout::packed};

EncodeArgs f32_args(const std::vector<float>& x, int64_t cols, ScaleGroup group, const Weight& to) {
  EncodeArgs args;
  args.source = reinterpret_cast<const std::byte*>(x.data());
  args.stored = DType::f32;
  args.source_stride = cols * 4;
  args.rows = static_cast<int64_t>(x.size()) / cols;
  args.group = group;
  args.to = to;
  return args;
}

std::vector<float> decoded(const Weight& w, int64_t row) {
  std::vector<float> out(static_cast<size_t>(w.cols));
  decode_row(w, row, out.data());
  return out;
}

TEST(Encode, UnquantizedElementsComeBack) {
  const std::vector<float> x = {1.5f, -0.0f, 3e38f, 1e-40f, 0.1f, -7};
  for (WeightLayout layout : kLayouts) {
    StoredWeight w({DType::f32, layout, ScaleKind::none}, 2, 3);
    EncodeStats stats = encode_reference(f32_args(x, 3, ScaleGroup::none, w.weight));
    EXPECT_EQ(decoded(w.weight, 0), (std::vector<float>{1.5f, -0.0f, 3e38f}));
    EXPECT_EQ(decoded(w.weight, 1), (std::vector<float>{1e-40f, 0.1f, -7}));
    EXPECT_EQ(stats.error_squares, 0);
    EXPECT_EQ(stats.elements, 6);
  }
}

TEST(Encode, ConversionsRoundToNearestEven) {
  const std::vector<float> x = {1.00390625f, 1.01171875f,
                                65519};  // bf16 ties, below f16's overflow
  StoredWeight bf16({DType::bf16, WeightLayout::rows, ScaleKind::none}, 1, 3);
  encode_reference(f32_args(x, 3, ScaleGroup::none, bf16.weight));
  EXPECT_EQ(decoded(bf16.weight, 0), (std::vector<float>{1.0f, 1.015625f, 65536}));
  StoredWeight f16({DType::f16, WeightLayout::packed, ScaleKind::none}, 1, 3);
  EncodeStats stats = encode_reference(f32_args(x, 3, ScaleGroup::none, f16.weight));
  EXPECT_EQ(decoded(f16.weight, 0), (std::vector<float>{1.00390625f, 1.01171875f, 65504}));
  EXPECT_EQ(stats.max_error, 15);
  EXPECT_EQ(stats.error_squares, 225);
}

// Rounds as torch does: 1 + 2^-8 + 2^-40 is just above a tie between bf16 numbers, but a tie as
// float32.
TEST(Encode, DoublesAreRoundedToFloatFirst) {
  const std::vector<double> x = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-24 + 0x1p-52, -1e-300, 3.5e38};
  EncodeArgs args = f32_args({}, 4, ScaleGroup::none, {});
  args.source = reinterpret_cast<const std::byte*>(x.data());
  args.stored = DType::f64;
  args.source_stride = 32;
  args.rows = 1;
  StoredWeight bf16({DType::bf16, WeightLayout::packed, ScaleKind::none}, 1, 4);
  args.to = bf16.weight;
  EXPECT_EQ(encode_reference(args).not_finite, 1);  // 3.5e38 is above every float32
  EXPECT_EQ(decoded(bf16.weight, 0)[0], 1.0f);
  StoredWeight f32({DType::f32, WeightLayout::rows, ScaleKind::none}, 1, 4);
  args.to = f32.weight;
  encode_reference(args);
  EXPECT_EQ(decoded(f32.weight, 0)[1], 1 + 0x1p-23f);
  EXPECT_EQ(absolute_max(args.source, DType::f64, 32, 1, 4), 1 + 0x1p-8f);
}

TEST(Encode, PaddingIsZeroWithScaleOne) {
  const std::vector<float> x(3 * 5, 2.0f);
  for (ScaleGroup group : {ScaleGroup::row, ScaleGroup::tensor}) {
    StoredWeight w({DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row}, 3, 5);
    EncodeArgs args = f32_args(x, 5, group, w.weight);
    args.tensor_amax = 2;
    encode_reference(args);
    int zero_bytes = 0;
    for (uint64_t i = 0; i < plane_bytes(w.weight.format, Plane::codes, 3, 5); ++i) {
      zero_bytes += w.weight.data[i] == std::byte{0};
    }
    EXPECT_EQ(zero_bytes, 2 * 64 - 15);
    for (int64_t r = 3; r < 16; ++r) EXPECT_EQ(w.weight.scales[r], 1.0f);
  }
}

TEST(Encode, ScalesComeFromTheLargestFiniteMagnitude) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1, -3, infinity, std::nanf(""), 0, 0, 0, -0.0f};
  StoredWeight w({DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row}, 2, 4);
  EncodeStats stats = encode_reference(f32_args(x, 4, ScaleGroup::row, w.weight));
  EXPECT_EQ(w.weight.scales[0], 3.0f / 448);
  EXPECT_EQ(w.weight.scales[1], 1.0f);
  EXPECT_EQ(w.weight.data[1], std::byte{0xfe});
  EXPECT_EQ(w.weight.data[2], std::byte{0x7e});
  EXPECT_EQ(w.weight.data[3] & std::byte{0x7f}, std::byte{0x7f});
  EXPECT_EQ(w.weight.data[7], std::byte{0x80});
  EXPECT_EQ(stats.not_finite, 2);
  EXPECT_EQ(stats.elements, 8);
  EXPECT_EQ(stats.value_squares, 10);
  EXPECT_TRUE(std::isfinite(stats.error_squares));
}

TEST(Encode, MagnitudesTooSmallForAScaleDoNotBecomeNan) {
  const std::vector<float> x = {1e-45f, 0, -1e-45f};
  StoredWeight w({DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row}, 1, 3);
  encode_reference(f32_args(x, 3, ScaleGroup::row, w.weight));
  EXPECT_EQ(decoded(w.weight, 0), (std::vector<float>{0, 0, 0}));
}

TEST(Encode, ErrorStaysWithinHalfAStepOfE4M3) {
  Random random("ErrorStaysWithinHalfAStepOfE4M3");
  std::vector<float> x(40 * 300);
  for (float& v : x) v = random.normal(0.02f);
  for (auto [group, scales] : {std::pair{ScaleGroup::row, ScaleKind::per_row},
                               std::pair{ScaleGroup::block, ScaleKind::per_block}}) {
    StoredWeight w({DType::f8_e4m3, WeightLayout::packed, scales}, 40, 300);
    EncodeStats stats = encode_reference(f32_args(x, 300, group, w.weight));
    double squares = 0;
    for (int64_t r = 0; r < 40; ++r) {
      auto row = decoded(w.weight, r);
      for (int64_t c = 0; c < 300; ++c) {
        float exact = x[static_cast<size_t>(r * 300 + c)];
        double error = static_cast<double>(row[static_cast<size_t>(c)]) - exact;
        float smallest_step = scale_at(w.weight, r, c) / 512;
        EXPECT_LE(std::abs(error), std::max(std::abs(exact) / 16, smallest_step) * 1.0001f);
        squares += error * error;
      }
    }
    EXPECT_NEAR(stats.error_squares, squares, squares * 1e-12);
    EXPECT_LT(std::sqrt(stats.error_squares / stats.value_squares), 0.04);
  }
}

// Row groups in any order give what the whole tensor gives.
TEST(Encode, RowGroupsGiveTheSameAsTheWhole) {
  Random random("RowGroupsGiveTheSameAsTheWhole");
  const int64_t rows = 300, cols = 70;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = random.normal();
  struct Case {
    ScaleGroup group;
    ScaleKind scales;
    int64_t unit;
  };
  for (Case c : {Case{ScaleGroup::row, ScaleKind::per_row, 16},
                 Case{ScaleGroup::block, ScaleKind::per_block, 128}}) {
    WeightFormat format{DType::f8_e4m3, WeightLayout::packed, c.scales};
    StoredWeight whole(format, rows, cols), parts(format, rows, cols);
    EncodeArgs args = f32_args(x, cols, c.group, whole.weight);
    EncodeStats expected = encode_reference(args), sum;
    args.to = parts.weight;
    for (int64_t end = rows; end > 0;) {
      int64_t begin = (end - 1) / c.unit * c.unit;
      args.source = reinterpret_cast<const std::byte*>(x.data() + begin * cols);
      args.rows = end - begin;
      args.first_row = begin;
      sum.add(encode_reference(args));
      end = begin;
    }
    EXPECT_EQ(std::memcmp(whole.weight.data, parts.weight.data,
                          plane_bytes(format, Plane::codes, rows, cols)),
              0);
    EXPECT_EQ(std::memcmp(whole.weight.scales, parts.weight.scales,
                          plane_bytes(format, Plane::scales, rows, cols)),
              0);
    EXPECT_EQ(sum.elements, expected.elements);
    EXPECT_EQ(sum.max_error, expected.max_error);
    EXPECT_NEAR(sum.error_squares, expected.error_squares, expected.error_squares * 1e-12);
  }
}

}  // namespace
}  // namespace sluice
