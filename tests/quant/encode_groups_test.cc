// Online schemes in groups give the codes and scales of other software: compressed-tensors (NVFP4,
// MXFP4, MXFP8), bitsandbytes (NF4), and symmetric integers.
#include "quant/encode_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "quant/group_codes.h"
#include "quant/groups.h"
#include "quant/scheme.h"
#include "tests/quant/golden.h"
#include "tests/quant/storage.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::Golden;
using test::StoredWeight;

Golden goldens() { return Golden(test::source_dir() / "tests/data/quant/groups.safetensors"); }

WeightFormat format_of(const char* scheme, WeightLayout layout) {
  return find_quant_scheme(scheme)->format(DType::bf16, layout);
}

// The weight that rows of a golden become, in one layout.
struct Encoded {
  Encoded(const char* scheme, WeightFormat format, const std::vector<std::byte>& x, DType stored,
          int64_t rows, int64_t cols)
      : storage(format, rows, cols) {
    EncodeArgs args;
    args.source = x.data();
    args.stored = stored;
    args.source_stride = cols * dtype_bytes(stored);
    args.rows = rows;
    args.group = find_quant_scheme(scheme)->group;
    args.to = storage.weight;
    args.tensor_amax = absolute_max(args.source, stored, args.source_stride, rows, cols);
    encode_reference(args);
  }
  uint32_t code(int64_t row, int64_t col) const {
    const WeightFormat& f = storage.weight.format;
    const auto* words = reinterpret_cast<const uint32_t*>(storage.weight.data);
    const int64_t runs = ceil_div(storage.weight.cols, kRunCols), run = col / kRunCols;
    const bool packed = f.layout == WeightLayout::packed;
    words +=
        packed ? (row / 16 * runs + run) * f.bits * 16 + row % 16 : (row * runs + run) * f.bits;
    return static_cast<uint32_t>(
        run_code(words, packed ? 16 : 1, f.bits, static_cast<int>(col % kRunCols)));
  }
  // The bits that are stored as the scale of a group.
  uint32_t scale(int64_t row, int64_t group) const {
    const WeightFormat& f = storage.weight.format;
    const int64_t groups = groups_of(f, storage.weight.cols), bytes = dtype_bytes(f.scale_type);
    const int64_t at = f.layout == WeightLayout::packed
                           ? (row / 16 * groups + group) * 16 + row % 16
                           : row * groups + group;
    uint32_t bits = 0;
    std::memcpy(&bits, storage.weight.group_scales + at * bytes, static_cast<size_t>(bytes));
    return bits;
  }
  StoredWeight storage;
};

constexpr WeightLayout kGroupLayouts[] = {WeightLayout::rows, WeightLayout::packed};

TEST(EncodeGroups, IntegersEqualTheGoldens) {
  const Golden golden = goldens();
  for (auto [matrix, group] : {std::pair{"m1", 32}, {"m2", 64}}) {
    for (int bits : {4, 8}) {
      for (WeightLayout layout : kGroupLayouts) {
        const std::string name = fmt::format("int.{}", matrix);
        const auto shape = golden.shape(name + ".x");
        const int64_t rows = shape[0], cols = shape[1];
        WeightFormat format = format_of("int4_g32", layout);
        format.bits = bits;
        format.zero_base = 1 << (bits - 1);
        format.scale_cols = group;
        const Encoded encoded("int4_g32", format, golden.values<std::byte>(name + ".x"), DType::f32,
                              rows, cols);
        const auto codes = golden.values<int8_t>(fmt::format("{}.sym{}.q", name, bits));
        const auto scales = golden.values<uint32_t>(fmt::format("{}.sym{}.scale", name, bits));
        for (int64_t i = 0; i < rows * cols; ++i)
          ASSERT_EQ(static_cast<int>(encoded.code(i / cols, i % cols)) - format.zero_base,
                    codes[static_cast<size_t>(i)]);
        const int64_t groups = ceil_div(cols, group);
        for (int64_t i = 0; i < rows * groups; ++i)
          ASSERT_EQ(encoded.scale(i / groups, i % groups), scales[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(EncodeGroups, Nf4EqualsBitsandbytes) {
  const Golden golden = goldens();
  const auto codes = golden.values<uint8_t>("nf4.m0.q");
  const auto scales = golden.values<uint32_t>("nf4.m0.absmax");
  for (WeightLayout layout : kGroupLayouts) {
    const Encoded encoded("nf4", format_of("nf4", layout), golden.values<std::byte>("nf4.m0.x"),
                          DType::f32, 64, 64);
    for (int64_t i = 0; i < 64 * 64; ++i) {
      const uint8_t pair = codes[static_cast<size_t>(i / 2)];
      ASSERT_EQ(encoded.code(i / 64, i % 64), i % 2 == 0 ? pair >> 4 : pair & 15) << i;
    }
    for (int64_t row = 0; row < 64; ++row)
      ASSERT_EQ(encoded.scale(row, 0), scales[static_cast<size_t>(row)]);
    EXPECT_EQ(encoded.storage.weight.tables[15], 1);
  }
}

// compressed-tensors scales an MX group whose largest element is above 7/4 of 2^127 by 1.
bool is_overflow(const std::string& test, const char* scheme, int64_t row) {
  return test == "maximum" && std::string_view(scheme) != "nvfp4" && row == 0;
}

void expect_compressed(const Golden& golden, const std::string& test, const char* scheme,
                       DType stored) {
  const std::string input = "ct." + test + ".x";
  const std::string kind =
      fmt::format("ct.{}.{}.{}", test, stored == DType::bf16 ? "bf16" : "f32", scheme);
  const auto shape = golden.shape(input);
  const int64_t rows = shape[0], cols = shape[1];
  auto x = golden.values<std::byte>(input);
  if (stored == DType::f32) {
    std::vector<std::byte> wide;
    for (uint16_t half : golden.values<uint16_t>(input)) {
      const auto bytes = std::bit_cast<std::array<std::byte, 4>>(bf16_to_float(half));
      wide.insert(wide.end(), bytes.begin(), bytes.end());
    }
    x = wide;
  }
  const auto codes = golden.values<uint8_t>(kind + ".q");
  const auto scales = golden.values<uint8_t>(kind + ".scale");
  for (WeightLayout layout : kGroupLayouts) {
    SCOPED_TRACE(kind);
    const Encoded encoded(scheme, format_of(scheme, layout), x, stored, rows, cols);
    const WeightFormat& format = encoded.storage.weight.format;
    if (format.outer != Outer::none) {
      ASSERT_EQ(encoded.storage.weight.outers[0],
                golden.values<float>(kind + ".global_scale").front());
    }
    const int64_t groups = cols / format.scale_cols;
    for (int64_t i = 0; i < rows * groups; ++i) {
      if (is_overflow(test, scheme, i / groups)) continue;
      ASSERT_EQ(encoded.scale(i / groups, i % groups), scales[static_cast<size_t>(i)]) << i;
    }
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (is_overflow(test, scheme, i / cols)) continue;
      const auto at = static_cast<size_t>(format.bits == 8 ? i : i / 2);
      const uint32_t code = format.bits == 8 ? codes[at] : codes[at] >> (i % 2 * 4) & 15;
      ASSERT_EQ(encoded.code(i / cols, i % cols), code) << i;
    }
  }
}

// compressed-tensors divides in the type of the elements. The values are what its release 0.20.1
// makes of these.
TEST(EncodeGroups, ScalesOfNvfp4AreThoseOfTheStoredType) {
  std::vector<std::byte> x;
  for (int i = 0; i < 64; ++i) {
    const auto element = static_cast<float>((i * 37 % 64 - 31) * 0.0137 * (1 + i / 16));
    const auto bytes = std::bit_cast<std::array<std::byte, 2>>(float_to_f16(element));
    x.insert(x.end(), bytes.begin(), bytes.end());
  }
  const Encoded encoded("nvfp4", format_of("nvfp4", WeightLayout::rows), x, DType::f16, 1, 64);
  EXPECT_EQ(encoded.storage.weight.outers[0], 1635.0f);  // in float32 1635.4795
  for (const auto& [group, scale] : {std::pair{0, 110u}, {1, 119u}, {2, 123u}, {3, 126u}})
    EXPECT_EQ(encoded.scale(0, group), scale);
}

TEST(EncodeGroups, FloatsEqualCompressedTensors) {
  const Golden golden = goldens();
  int matrices = 0;
  for (const char* test : {"random", "spread", "zero_row", "all_zero", "denormal", "tiny", "huge",
                           "negative", "outlier", "one_column_block", "minus_zero", "maximum",
                           "e8m0_borders", "e2m1_ties", "e4m3_ties"}) {
    ASSERT_TRUE(golden.has(fmt::format("ct.{}.x", test))) << test;
    for (const char* scheme : {"nvfp4", "mxfp4", "mxfp8"}) {
      for (DType stored : {DType::f32, DType::bf16}) {
        expect_compressed(golden, test, scheme, stored);
        if (testing::Test::HasFatalFailure()) return;
        ++matrices;
      }
    }
  }
  EXPECT_EQ(matrices, 90);
}

TEST(EncodeGroups, E2m1CodesEqualTheGoldens) {
  const Golden golden = goldens();
  const auto x = golden.values<float>("e2m1.x");
  const auto codes = golden.values<uint8_t>("e2m1.code");
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(float_to_e2m1(x[i]), codes[i]) << x[i];
}

TEST(EncodeGroups, RowsThatFillUpAPanelAreZero) {
  const std::vector<std::byte> x(3 * 40 * 4, std::byte{0x3f});
  for (const QuantScheme& scheme : quant_schemes().subspan(element_schemes().size())) {
    const Encoded encoded(scheme.name.data(), scheme.format(DType::f32, WeightLayout::packed), x,
                          DType::f32, 3, 40);
    std::vector<float> row(40);
    decode_grouped_row(encoded.storage.weight, 15, row.data());
    EXPECT_EQ(row, std::vector<float>(40)) << scheme.name;
    decode_grouped_row(encoded.storage.weight, 2, row.data());
    EXPECT_NEAR(row[39], 0.747f, 0.1f) << scheme.name;
  }
}

}  // namespace
}  // namespace sluice
