// Blocks of GGUF against the gguf package, and GPTQ tensors against their definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/quant/golden.h"
#include "tests/quant/grouped_weights.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::Golden;
using test::GptqLayer;
using test::kBlockTypes;
using test::StoredWeight;

std::string lower(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = static_cast<char>(std::tolower(c));
  return out;
}

void expect_rows(const Weight& w, const std::vector<float>& values, int64_t rows,
                 const std::string& what) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(w, r, row.data());
    ASSERT_EQ(std::memcmp(row.data(), values.data() + r * w.cols, row.size() * sizeof(float)), 0)
        << what << ", row " << r;
  }
}

// The golden's tensors PREFIX TYPE .raw and .dequant.
void expect_golden(const Golden& golden, const std::string& prefix, DType type,
                   const std::string& name) {
  if (!golden.has(prefix + name + ".raw")) return;
  const auto blocks = golden.values<uint8_t>(prefix + name + ".raw");
  const auto values = golden.values<float>(prefix + name + ".dequant");
  const int64_t rows = golden.shape(prefix + name + ".dequant")[0];
  const int64_t cols = golden.shape(prefix + name + ".dequant")[1];
  for (WeightLayout layout : {WeightLayout::rows, WeightLayout::packed}) {
    const StoredWeight w = test::block_weight(type, layout, rows, cols, blocks);
    expect_rows(w.weight, values, rows, prefix + name);
  }
}

TEST(Blocks, AreWhatTheGgufPackageMakesOfThem) {
  const Golden golden(test::source_dir() / "tests/data/quant/gguf_blocks.safetensors");
  for (DType type : kBlockTypes) {
    const std::string name = lower(dtype_name(type));
    ASSERT_TRUE(golden.has(name + ".raw")) << name;
    expect_golden(golden, "", type, name);
  }
}

TEST(Blocks, FullGoldensAreTheirs) {
  const std::filesystem::path root = test::oracle_dir() / "quant";
  if (!std::filesystem::exists(root / "gguf_blocks")) GTEST_SKIP() << "no shared fixture quant";
  for (const char* file : {"gguf_blocks", "gguf_blocks_more"}) {
    const Golden golden(root / file / "golden.safetensors");
    for (DType type : kBlockTypes) {
      expect_golden(golden, "", type, std::string(dtype_name(type)));
      expect_golden(golden, "random.", type, std::string(dtype_name(type)));
    }
  }
}

TEST(Blocks, TakeNoMoreMemoryThanTheyAre) {
  for (DType type : kBlockTypes) {
    const WeightFormat format{.dtype = type};
    const BlockLayout layout = block_layout(type);
    EXPECT_EQ(weight_bytes(format, 32, 512),
              static_cast<uint64_t>(32 * 512 / layout.cols * layout.bytes));
  }
}

TEST(Blocks, ThatAreNotFiniteAreCounted) {
  test::Random random("blocks that are not finite");
  for (const auto& [type, at, scale] : {std::tuple{DType::q4_0, 0, uint16_t{0x7e00}},
                                        {DType::q2_k, 82, uint16_t{0x7c00}},
                                        {DType::q6_k, 208, uint16_t{0x7e00}},
                                        {DType::e2m1_e8m0, 0, uint16_t{0x00ff}},
                                        {DType::iq2_xs, 0, uint16_t{0xfc00}},
                                        {DType::tq1_0, 52, uint16_t{0x7e00}}}) {
    auto blocks = test::random_blocks(type, 2, 512, random);
    StoredWeight w({.dtype = type, .layout = WeightLayout::rows}, 2, 512);
    std::memcpy(blocks.data() + at, &scale, sizeof scale);
    EncodeArgs args;
    args.source = reinterpret_cast<const std::byte*>(blocks.data());
    args.stored = type;
    args.source_stride = grouped_row_bytes(w.weight.format, 512);
    args.rows = 2;
    args.to = w.weight;
    const EncodeStats stats = encode_reference(args);
    EXPECT_EQ(stats.not_finite, block_layout(type).cols) << dtype_name(type);
    EXPECT_EQ(stats.elements, 2 * 512);
  }
}

TEST(Groups, ScalesOfAByteThatAreNaNAreCounted) {
  for (const auto& [type, nans] : {std::pair{DType::f8_e4m3, 2}, {DType::f8_e8m0, 1}}) {
    WeightFormat format{.dtype = DType::u8,
                        .layout = WeightLayout::packed,
                        .scales = ScaleKind::grouped,
                        .scale_cols = 32};
    format.bits = 4;
    format.table = CodeTable::e2m1;
    format.scale_type = type;
    const StoredWeight w(format, 16, 512);  // 256 scales
    std::vector<std::byte> scales(256);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(i);
    EncodeArgs args;
    args.to = w.weight;
    args.plane = Plane::scales;
    args.stored = type;
    args.source = scales.data();
    args.source_stride = 16;
    args.source_cols = 512;
    args.rows = 16;
    EXPECT_EQ(encode_reference(args).not_finite, nans) << dtype_name(type);
  }
}

// NVFP4's have a scale of the whole tensor, which multiplies last.
TEST(Blocks, ScalesOfRowsMultiplyTheirElementsLast) {
  test::Random random("scales of rows");
  const auto blocks = test::random_blocks(DType::e2m1_e4m3, 20, 128, random);
  const float scale = random.normal(3.0f);
  for (WeightLayout layout : {WeightLayout::rows, WeightLayout::packed}) {
    const StoredWeight plain = test::block_weight(DType::e2m1_e4m3, layout, 20, 128, blocks);
    const StoredWeight w = test::scaled_blocks(DType::e2m1_e4m3, layout, 20, 128, blocks, scale);
    std::vector<float> expected(128), actual(128);
    for (int64_t r = 0; r < 20; ++r) {
      decode_row(plain.weight, r, expected.data());
      decode_row(w.weight, r, actual.data());
      for (size_t c = 0; c < expected.size(); ++c) EXPECT_EQ(actual[c], expected[c] * scale);
    }
  }
}

// The product's view of a row is that of its elements, but for rounding.
void expect_groups_like_row(const Weight& w, int64_t row) {
  std::vector<float> values(static_cast<size_t>(w.cols)), codes(values.size());
  std::vector<float> scales(static_cast<size_t>(groups_of(w.format, w.cols))), mins(scales.size());
  decode_row(w, row, values.data());
  decode_groups(w, row, {codes.data(), scales.data(), mins.data()});
  for (int64_t c = 0; c < w.cols; ++c) {
    const auto g = static_cast<size_t>(c / group_cols(w.format));
    const auto i = static_cast<size_t>(w.order != nullptr ? w.order[c] : c);
    const float code = codes[static_cast<size_t>(c)];
    EXPECT_EQ(bf16_to_float(float_to_bf16(code)), code);
    EXPECT_NEAR(values[i], scales[g] * code - mins[g],
                1e-6f * (std::abs(scales[g] * code) + std::abs(mins[g])));
  }
}

TEST(Groups, CodesScalesAndMinimumsAreTheElements) {
  test::Random random("groups");
  for (DType type : kBlockTypes) {
    const auto blocks = test::random_blocks(type, 20, 512, random);
    const StoredWeight w = test::block_weight(type, WeightLayout::packed, 20, 512, blocks);
    expect_groups_like_row(w.weight, 17);
  }
  for (int bits : {2, 3, 4, 8}) {
    const GptqLayer layer(bits, 64, 192, 64, true, random);
    expect_groups_like_row(layer.weight(WeightLayout::packed, 1, 1).weight, 37);
  }
}

TEST(Gptq, ElementsAreAsDefined) {
  test::Random random("gptq");
  for (int bits : {2, 3, 4, 8}) {
    for (bool act_order : {false, true}) {
      for (int64_t group : {32, 96, 192}) {
        const GptqLayer layer(bits, 96, 192, group, act_order, random);
        for (WeightLayout layout : {WeightLayout::rows, WeightLayout::packed}) {
          for (int base : {0, 1}) {
            const StoredWeight w = layer.weight(layout, base, 1 + base, encode_reference,
                                                base == 0 ? DType::f16 : DType::f32);
            std::vector<float> values;
            for (int64_t o = 0; o < layer.outputs; ++o)
              for (int64_t i = 0; i < layer.inputs; ++i) values.push_back(layer.value(o, i, base));
            expect_rows(w.weight, values, layer.outputs, fmt::format("{} bits of {}", bits, group));
          }
        }
      }
    }
  }
}

// A tensor may have the heads of queries, keys and values in turn.
TEST(Gptq, OutputsMayBeRunsOfTheTensors) {
  test::Random random("gptq in runs");
  for (int bits : {2, 3, 4, 8}) {
    for (bool act_order : {false, true}) {
      const GptqLayer layer(bits, 96, 128, 64, act_order, random);
      const auto column = [](int64_t o) { return 5 + o / 20 * 40 + o % 20; };
      std::vector<float> values;
      for (int64_t o = 0; o < 40; ++o)
        for (int64_t i = 0; i < layer.inputs; ++i) values.push_back(layer.value(column(o), i, 1));
      for (WeightLayout layout : {WeightLayout::rows, WeightLayout::packed}) {
        const StoredWeight w = layer.weight(layout, 1, 1, [&](EncodeArgs args) {
          args.first_output = 5;
          args.output_run = 20;
          args.output_stride = 40;
          args.outputs = 40;
          return encode_reference(args);
        });
        expect_rows(w.weight, values, 40, fmt::format("{} bits", bits));
      }
    }
  }
}

TEST(Gptq, RowsThatFillUpAPanelAreZero) {
  test::Random random("padding");
  for (int bits : {2, 4, 8}) {
    const GptqLayer layer(bits, 16 + 32 / bits, 64, 32, false, random);
    const StoredWeight w = layer.weight(WeightLayout::packed, 0, 1);
    std::vector<float> row(64);
    for (int64_t r = layer.outputs; r < w.weight.rows; ++r) {
      decode_row(w.weight, r, row.data());
      for (float v : row) EXPECT_EQ(v, 0);
    }
  }
}

TEST(Gptq, GroupsOfAnotherSizeAreRefused) {
  EXPECT_TRUE(order_by_group(std::vector<int32_t>{0, 0, 1, 1}, 2, "x.g_idx").empty());
  EXPECT_EQ(order_by_group(std::vector<int32_t>{1, 0, 1, 0}, 2, "x.g_idx"),
            (std::vector<int32_t>{1, 3, 0, 2}));
  for (const std::vector<int32_t>& bad :
       {std::vector<int32_t>{0, 0, 0, 1}, {0, 0, 2, 2}, {-1, 0, 1, 1}, {0, 1, 1, 1}}) {
    try {
      order_by_group(bad, 2, "x.g_idx");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_NE(std::string(e.what()).find("x.g_idx"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace sluice
