#include "quant/scheme.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Scheme, EveryListedNameIsFound) {
  for (const QuantScheme& scheme : quant_schemes()) {
    auto found = find_quant_scheme(scheme.name);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->group, scheme.group);
  }
  EXPECT_EQ(quant_schemes().front().name, "none");
  EXPECT_EQ(find_quant_scheme("fp8")->name, "fp8_per_channel");
  EXPECT_EQ(find_quant_scheme("int4")->name, "int4_g128");
  EXPECT_EQ(element_schemes().back().name, "int8");
  EXPECT_EQ(*find_quant_scheme("q8_activations"), rounded_inputs_scheme());
  EXPECT_FALSE(find_quant_scheme("fp9"));
  EXPECT_FALSE(find_quant_scheme(""));
}

TEST(Scheme, FormatsFollowTheGroup) {
  const auto packed = WeightLayout::packed;
  EXPECT_EQ(find_quant_scheme("none")->format(DType::f16, packed),
            (WeightFormat{DType::f16, packed, ScaleKind::none}));
  EXPECT_EQ(find_quant_scheme("fp8_per_tensor")->format(DType::bf16, packed),
            (WeightFormat{DType::f8_e4m3, packed, ScaleKind::per_row}));
  EXPECT_EQ(find_quant_scheme("fp8_per_block")->format(DType::f32, WeightLayout::rows),
            (WeightFormat{DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_block}));
  EXPECT_EQ(find_quant_scheme("fp8_dynamic")->format(DType::bf16, packed),
            (WeightFormat{DType::f8_e4m3, packed, ScaleKind::per_row, true}));
  EXPECT_EQ(find_quant_scheme("int8")->format(DType::bf16, packed),
            (WeightFormat{DType::i8, packed, ScaleKind::per_row}));
  for (const QuantScheme& scheme : quant_schemes().subspan(element_schemes().size()))
    EXPECT_EQ(scheme.format(DType::bf16, packed).scales, ScaleKind::grouped) << scheme.name;
}

// Bytes of 1024 columns of a row.
TEST(Scheme, GroupedCodesHaveTheirSizes) {
  const auto bytes = [](const char* name) {
    return weight_bytes(find_quant_scheme(name)->format(DType::bf16, WeightLayout::packed), 16,
                        1024) /
           16;
  };
  EXPECT_EQ(bytes("int8_weight_only"), 1024 + 4);
  EXPECT_EQ(bytes("int4_g128"), 512 + 8 * 4);
  EXPECT_EQ(bytes("int4_g32"), 512 + 32 * 4);
  EXPECT_EQ(bytes("nf4"), 512 + 16 * 4 + 16 * 4 / 16);  // with a table
  EXPECT_EQ(bytes("mxfp8"), 1024 + 32);
  EXPECT_EQ(bytes("mxfp4"), 512 + 32);
  EXPECT_EQ(bytes("nvfp4"), 512 + 64);
}

}  // namespace
}  // namespace sluice
