// Tensors of weights in groups become what the reference makes of them, on every target.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "quant/order_codes.h"
#include "quant/row_codes.h"
#include "tests/kernels/backend.h"
#include "tests/quant/grouped_weights.h"

namespace sluice {
namespace {

using test::Backend;
using test::expect_same_planes;
using test::GptqLayer;
using test::kBlockTypes;
using test::StoredWeight;

class EncodedGroups : public test::EveryTarget {};

// Tensors of a checkpoint become what the reference makes of them, and so do rows of a spill.
TEST_P(EncodedGroups, EncodesAsTheReference) {
  test::Random random("EncodedGroups.EncodesAsTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  auto encode = [&](const EncodeArgs& args) { return backend.encoder->encode(args); };
  for (int bits : {2, 3, 4, 8}) {
    for (bool act_order : {false, true}) {
      SCOPED_TRACE(testing::Message() << bits << " bits" << (act_order ? ", ordered" : ""));
      const GptqLayer layer(bits, 64, 128, 32, act_order, random);
      const StoredWeight expected = layer.weight(GetParam().layout_of_groups(), 1, 4);
      const StoredWeight found = layer.weight(GetParam().layout_of_groups(), 1, 4, encode);
      expect_same_planes(found.weight, expected.weight);

      const auto some = [](EncodeArgs args) {  // outputs head by head
        args.first_output = 8;
        args.output_run = 8;
        args.output_stride = 24;
        args.outputs = 16;
        return args;
      };
      const auto some_found =
          layer.weight(GetParam().layout_of_groups(), 1, 4,
                       [&](const EncodeArgs& args) { return backend.encoder->encode(some(args)); });
      const auto some_expected =
          layer.weight(GetParam().layout_of_groups(), 1, 4,
                       [&](const EncodeArgs& args) { return encode_reference(some(args)); });
      expect_same_planes(some_found.weight, some_expected.weight);
    }
  }
}

// Random codes of one plane, and what becomes of them.
struct RandomCodes {
  WeightFormat format{.dtype = DType::u8, .scales = ScaleKind::grouped};
  int64_t rows = 0, cols = 0;
  std::vector<int32_t> order = {};
  std::vector<std::byte> bytes = {};
  EncodeArgs args = {};

  void fill(int64_t count, test::Random& random) {
    bytes.resize(static_cast<size_t>(count));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.between(0, 255));
    if (random.between(0, 2) > 0) return;
    order.resize(static_cast<size_t>(cols));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random.engine());
    format.ordered = true;
  }
  template <class Encode>
  StoredWeight encoded(const Encode& encode) const {
    StoredWeight w(format, rows, cols);
    EncodeArgs all = args;
    all.to = w.weight;
    all.source = bytes.data();
    if (format.ordered) all.order = order.data();
    encode(all);
    return w;
  }
};

RandomCodes random_rows(test::Random& random) {
  constexpr int kBits[] = {1, 2, 3, 4, 4, 5, 6, 8};
  RandomCodes codes{.rows = random.between(1, 40), .cols = random.between(1, 700)};
  codes.format.bits = kBits[random.between(0, 7)];
  const bool whole = codes.format.bits == 2 || codes.format.bits == 4 || codes.format.bits == 8;
  const bool shared = codes.format.bits < 5 && codes.format.bits != 3 && random.between(0, 3) == 0;
  if (shared) {
    codes.args.words.sharing = 8 / codes.format.bits;
    codes.args.words.place = static_cast<int>(random.between(0, codes.args.words.sharing - 1));
  }
  if (!whole && !shared && random.between(0, 1) > 0)
    codes.args.words.of_word = 32 / codes.format.bits;
  const bool halves = codes.format.bits == 4 && !shared;
  codes.args.words.high_first = (halves || shared) && random.between(0, 1) > 0;
  codes.args.words.is_signed = (halves || codes.format.bits == 8) && random.between(0, 1) > 0;
  codes.args.stored = DType::u8;
  codes.args.rows = codes.rows;
  codes.args.to.format = codes.format;
  codes.args.to.cols = codes.cols;
  codes.args.source_stride = code_row_bytes(codes.args) + random.between(0, 3);
  codes.fill((codes.rows - 1) * codes.args.source_stride + code_row_bytes(codes.args), random);
  return codes;
}

RandomCodes random_columns(test::Random& random) {
  constexpr int kBits[] = {2, 3, 4, 8};
  const int64_t stored = random.between(1, 8) * 8, runs = random.between(1, 20);
  RandomCodes codes{.rows = random.between(1, stored), .cols = runs * kRunCols};
  const bool across = random.between(0, 2) == 0;
  codes.format.bits = across ? 4 : kBits[random.between(0, 3)];
  codes.args.stored = DType::u32;
  codes.args.outputs = codes.rows;
  codes.args.first_output = random.between(0, stored - codes.rows);
  if (random.between(0, 1) > 0) codes.args.first_output -= codes.args.first_output % 8;
  codes.args.rows = across ? codes.cols : runs * codes.format.bits;
  codes.args.source_stride = across ? stored / 2 : stored * 4;
  codes.fill(codes.args.rows * codes.args.source_stride, random);
  codes.format.ordered = false;
  if (across) codes.args.words = {.across = true, .places = 0x73625140};
  return codes;
}

TEST_P(EncodedGroups, CodesOfAnySizeBecomeThoseOfTheReference) {
  test::Random random("EncodedGroups.CodesOfAnySizeBecomeThoseOfTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  for (int64_t i = 0; i < GetParam().size(400, 60); ++i) {
    RandomCodes codes = i % 2 == 0 ? random_rows(random) : random_columns(random);
    codes.format.layout = GetParam().layout_of_groups();
    SCOPED_TRACE(testing::Message() << i << ": " << codes.format.bits << " bits, " << codes.rows
                                    << " x " << codes.cols);
    const StoredWeight expected = codes.encoded(encode_reference);
    const StoredWeight found =
        codes.encoded([&](const EncodeArgs& args) { return backend.encoder->encode(args); });
    ASSERT_EQ(std::memcmp(found.weight.data, expected.weight.data,
                          plane_bytes(codes.format, Plane::codes, codes.rows, codes.cols)),
              0);
  }
}

// The last of them has more words than a panel is copied of.
TEST_P(EncodedGroups, ColumnsChangePlacesAsByTheReference) {
  test::Random random("EncodedGroups.ColumnsChangePlacesAsByTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  for (const auto& [bits, wide] : {std::pair{1, false},
                                   {2, false},
                                   {3, false},
                                   {4, false},
                                   {5, false},
                                   {6, false},
                                   {8, false},
                                   {8, true}}) {
    if (wide && GetParam().gpu != nullptr) continue;
    const int64_t rows = wide ? 16 : 48, cols = (wide ? 2100 : random.between(1, 40)) * kRunCols;
    SCOPED_TRACE(testing::Message() << bits << " bits, " << cols << " columns");
    WeightFormat format{.dtype = DType::u8,
                        .layout = GetParam().layout_of_groups(),
                        .scales = ScaleKind::grouped,
                        .ordered = true};
    format.bits = bits;
    const StoredWeight found(format, rows, cols), expected(format, rows, cols);
    const uint64_t bytes = plane_bytes(format, Plane::codes, rows, cols);
    for (uint64_t i = 0; i < bytes; ++i)
      found.weight.data[i] = static_cast<std::byte>(random.between(0, 255));
    std::memcpy(expected.weight.data, found.weight.data, bytes);
    std::vector<int32_t> order(static_cast<size_t>(cols));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random.engine());
    const int64_t first = wide ? 0 : 16;
    order_columns(expected.weight, first, 16, order.data(), order_codes);
    backend.encoder->order_columns(found.weight, first, 16, order.data());
    ASSERT_EQ(std::memcmp(found.weight.data, expected.weight.data, bytes), 0);
    ASSERT_TRUE(std::equal(order.begin(), order.end(), found.weight.order));
  }
}

// Panels of blocks: rows with gaps between them, the last panel not full, a block not finite.
TEST_P(EncodedGroups, EncodesBlocksAsTheReference) {
  test::Random random("EncodedGroups.EncodesBlocksAsTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  const int64_t rows = GetParam().size(41, 19), blocks = GetParam().size(5, 2);
  for (DType type : kBlockTypes) {
    SCOPED_TRACE(dtype_name(type));
    const BlockLayout layout = block_layout(type);
    const int64_t stride = round_to(blocks * layout.bytes, 4) + 4;
    std::vector<uint8_t> source(static_cast<size_t>(rows * stride));
    for (uint8_t& b : source) b = static_cast<uint8_t>(random.between(0, 255));
    const auto encoded = [&](const test::Encode& encode) {
      StoredWeight w({.dtype = type, .layout = GetParam().layout_of_groups()}, rows,
                     blocks * layout.cols);
      EncodeArgs args;
      args.source = reinterpret_cast<const std::byte*>(source.data());
      args.stored = type;
      args.source_stride = stride;
      args.rows = rows;
      args.to = w.weight;
      return std::pair(std::move(w), encode(args));
    };
    const auto [expected, wanted] = encoded(encode_reference);
    const auto [found, stats] =
        encoded([&](const EncodeArgs& args) { return backend.encoder->encode(args); });
    expect_same_planes(found.weight, expected.weight);
    EXPECT_EQ(stats.elements, rows * blocks * layout.cols);
    EXPECT_EQ(stats.not_finite, wanted.not_finite);
  }
}

// Words of eight outputs in an order of their own, as AWQ has them.
TEST_P(EncodedGroups, CodesAcrossRowsAreEncodedAsByTheReference) {
  test::Random random("EncodedGroups.CodesAcrossRowsAreEncodedAsByTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  constexpr int64_t kInputs = 96, kOutputs = 64, kGroup = 32, kTaken = 40;
  constexpr int kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::vector<uint32_t> codes(kInputs * kOutputs / 8), zeros(kInputs / kGroup * kOutputs / 8);
  std::vector<uint16_t> scales(kInputs / kGroup * kOutputs);
  for (uint32_t& word : codes) word = static_cast<uint32_t>(random.between(0, UINT32_MAX));
  for (uint32_t& word : zeros) word = static_cast<uint32_t>(random.between(0, UINT32_MAX));
  for (uint16_t& scale : scales) scale = float_to_f16(random.normal(0.02f));
  const auto encoded = [&](const auto& encode) {
    WeightFormat format{.dtype = DType::u8,
                        .layout = GetParam().layout_of_groups(),
                        .scales = ScaleKind::grouped,
                        .scale_cols = kGroup};
    format.bits = 4;
    format.scale_type = DType::f16;
    StoredWeight w(format, kTaken, kInputs);
    EncodeArgs args;
    args.to = w.weight;
    args.words = {.across = true, .places = 0x73625140};
    args.outputs = kTaken;
    args.first_output = 4;
    args.output_run = 20;
    args.output_stride = 32;
    args.stored = DType::u32;
    args.source_stride = kOutputs / 2;
    args.source = reinterpret_cast<const std::byte*>(codes.data());
    args.rows = kInputs;
    encode(args);
    args.plane = Plane::zeros;
    args.source = reinterpret_cast<const std::byte*>(zeros.data());
    args.rows = kInputs / kGroup;
    encode(args);
    args.plane = Plane::scales;
    args.stored = DType::f16;
    args.source = reinterpret_cast<const std::byte*>(scales.data());
    args.source_stride = kOutputs * 2;
    encode(args);
    return w;
  };
  const StoredWeight expected = encoded(encode_reference);
  const StoredWeight found =
      encoded([&](const EncodeArgs& args) { return backend.encoder->encode(args); });
  expect_same_planes(found.weight, expected.weight);
  std::vector<float> row(kInputs);
  const auto code_at = [&](const std::vector<uint32_t>& words, int64_t r, int64_t output) {
    return static_cast<int>(words[static_cast<size_t>(r * kOutputs / 8 + output / 8)] >>
                                (kPlaces[output % 8] * 4) &
                            15);
  };
  for (int64_t r = 0; r < kTaken; ++r) {
    decode_row(expected.weight, r, row.data());
    const int64_t output = 4 + r / 20 * 32 + r % 20;
    for (int64_t c = 0; c < kInputs; ++c) {
      const float scale = f16_to_float(scales[static_cast<size_t>(c / kGroup * kOutputs + output)]);
      ASSERT_EQ(row[static_cast<size_t>(c)],
                static_cast<float>(code_at(codes, c, output) - code_at(zeros, c / kGroup, output)) *
                    scale);
    }
  }
}

// Rows of a stored plane, of which some are taken head by head, or share a row.
StoredWeight encoded(const WeightFormat& format, int64_t rows, int64_t cols,
                     const EncodeArgs& codes, const EncodeArgs& scales,
                     const std::function<EncodeStats(const EncodeArgs&)>& encode) {
  StoredWeight w(format, rows, cols);
  for (EncodeArgs args : {codes, scales}) {
    args.to = w.weight;
    args.rows = rows;
    args.source_cols = args.plane == Plane::codes ? 0 : cols;
    EXPECT_EQ(encode(args).not_finite, 0);
  }
  return w;
}

// E4M3 codes with scales of their own, some outputs of a tensor head by head.
TEST_P(EncodedGroups, ScaledCodesAreEncodedAsByTheReference) {
  test::Random random("EncodedGroups.ScaledCodesAreEncodedAsByTheReference");
  Backend backend(GetParam(), Compute::bf16, {});
  const auto encode = [&](const EncodeArgs& args) { return backend.encoder->encode(args); };
  for (ScaleKind kind : {ScaleKind::per_row, ScaleKind::per_block}) {
    for (DType type : {DType::f32, DType::bf16, DType::f16, DType::f8_e8m0}) {
      for (int64_t cols : {160, 301}) {
        SCOPED_TRACE(testing::Message() << dtype_name(type) << ", " << cols << " columns");
        const bool block = kind == ScaleKind::per_block;
        const int64_t rows = block ? 80 : 70, stored_rows = 400;
        std::vector<std::byte> codes(static_cast<size_t>(stored_rows * cols)), scales(40000);
        for (std::byte& code : codes) code = static_cast<std::byte>(random.between(0, 0x7e));
        for (std::byte& byte : scales) byte = static_cast<std::byte>(random.between(0x30, 0x3f));
        EncodeArgs of_codes, of_scales;
        of_codes.stored = DType::f8_e4m3;
        of_codes.source = codes.data();
        of_codes.source_stride = cols;
        of_codes.run_rows = 16;
        of_codes.run_stride = 48 * cols;
        of_scales.plane = Plane::scales;
        of_scales.stored = type;
        of_scales.source = scales.data();
        of_scales.source_stride = (block ? ceil_div(cols, int64_t{128}) : 1) * dtype_bytes(type);
        of_scales.sharing = block ? 128 : 1;
        of_scales.first_output = block ? 32 : 0;
        of_scales.output_run = 16;
        of_scales.output_stride = 48;
        const WeightFormat format =
            with_layout(GetParam().matrix_layout(), {.dtype = DType::f8_e4m3, .scales = kind});
        const StoredWeight expected =
            encoded(format, rows, cols, of_codes, of_scales, encode_reference);
        const StoredWeight found = encoded(format, rows, cols, of_codes, of_scales, encode);
        expect_same_planes(found.weight, expected.weight);
      }
    }
  }
}

SLUICE_OVER_EVERY_TARGET(EncodedGroups);

}  // namespace
}  // namespace sluice
