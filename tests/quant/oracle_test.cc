// Bit-equality with torch's float8 casts and the scaled schemes: on the cut-down goldens in
// tests/data/quant, and on the full ones where they are at hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quant/encode.h"
#include "quant/float8.h"
#include "tests/quant/golden.h"
#include "tests/quant/storage.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::Golden;
using test::StoredWeight;

struct Format {
  std::string name;
  uint8_t (*encode)(float);
  float (*decode)(uint8_t);
  int nan_above;  // magnitude codes above this are NaN
};
const Format kFormats[] = {{"e4m3fn", float_to_e4m3, e4m3_to_float, 0x7e},
                           {"e5m2", float_to_e5m2, e5m2_to_float, 0x7c}};

void expect_codes(const std::vector<float>& x, const std::vector<uint8_t>& codes,
                  const Format& format) {
  ASSERT_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) {
    uint8_t code = format.encode(x[i]);
    if (std::isnan(x[i])) {
      EXPECT_GT(code & 0x7f, format.nan_above);
    } else {
      ASSERT_EQ(code, codes[i]) << format.name << " of " << x[i];
    }
  }
}

void expect_casts(const Golden& golden) {
  for (const Format& format : kFormats) {
    auto values = golden.values<float>("decode." + format.name);
    for (size_t code = 0; code < 256; ++code) {
      float value = format.decode(static_cast<uint8_t>(code));
      if (std::isnan(values[code])) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(values[code])) << code;
      }
    }
    expect_codes(golden.values<float>("f32.values"),
                 golden.values<uint8_t>("f32." + format.name + ".saturated"), format);
    if (!golden.has("bf16.bits")) continue;
    std::vector<float> x;
    for (uint16_t bits : golden.values<uint16_t>("bf16.bits")) x.push_back(bf16_to_float(bits));
    expect_codes(x, golden.values<uint8_t>("bf16." + format.name + ".saturated"), format);
  }
}

struct Kind {
  std::string name;
  ScaleGroup group;
  ScaleKind scales;
};
const Kind kKinds[] = {{"tensor", ScaleGroup::tensor, ScaleKind::per_row},
                       {"channel", ScaleGroup::row, ScaleKind::per_row},
                       {"block128", ScaleGroup::block, ScaleKind::per_block}};

void expect_scaled(const Golden& golden, const std::string& matrix, const Kind& kind) {
  const auto shape = golden.shape(matrix + ".x");
  const int64_t rows = shape[0], cols = shape[1], blocks = ceil_div(cols, kScaleBlock);
  const auto x = golden.values<std::byte>(matrix + ".x");
  const auto codes = golden.values<uint8_t>(matrix + "." + kind.name + ".q");
  const auto scales = golden.values<float>(matrix + "." + kind.name + ".scale");
  for (WeightLayout layout : {WeightLayout::rows, WeightLayout::packed}) {
    StoredWeight w({DType::f8_e4m3, layout, kind.scales}, rows, cols);
    EncodeArgs args;
    args.source = x.data();
    args.source_stride = cols * 2;
    args.rows = rows;
    args.group = kind.group;
    args.to = w.weight;
    args.tensor_amax = absolute_max(x.data(), DType::bf16, cols * 2, rows, cols);
    encode_reference(args);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t group = kind.group == ScaleGroup::tensor ? 0
                              : kind.group == ScaleGroup::row  ? r
                                                               : r / 128 * blocks + c / 128;
        ASSERT_EQ(scale_at(w.weight, r, c), scales[static_cast<size_t>(group)]);
        auto code = std::to_integer<uint8_t>(w.weight.data[element_offset(w.weight, r, c)]);
        ASSERT_EQ(code, codes[static_cast<size_t>(r * cols + c)])
            << matrix << " " << kind.name << " row " << r << " column " << c;
      }
    }
  }
}

int expect_all_scaled(const Golden& golden) {
  int matrices = 0;
  for (int i = 0; i < 100; ++i) {
    std::string matrix = fmt::format("m{}", i);
    if (!golden.has(matrix + ".x")) continue;
    ++matrices;
    for (const Kind& kind : kKinds) expect_scaled(golden, matrix, kind);
  }
  return matrices;
}

std::filesystem::path bundled(const char* name) {
  return test::source_dir() / "tests/data/quant" / name;
}

TEST(QuantGolden, CastsEqualTorch) { expect_casts(Golden(bundled("fp8_cast.safetensors"))); }

TEST(QuantGolden, ScaledCodesEqualTorch) {
  EXPECT_EQ(expect_all_scaled(Golden(bundled("fp8_scales.safetensors"))), 2);
}

TEST(QuantGolden, FullCastsEqualTorch) {
  auto path = test::oracle_dir() / "quant/fp8_cast/golden.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared fixture quant/fp8_cast";
  expect_casts(Golden(path));
}

TEST(QuantGolden, FullScaledCodesEqualTorch) {
  auto path = test::oracle_dir() / "quant/fp8_scales/golden.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared fixture quant/fp8_scales";
  EXPECT_GT(expect_all_scaled(Golden(path)), 0);
}

}  // namespace
}  // namespace sluice
