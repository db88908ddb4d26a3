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
}

}  // namespace
}  // namespace sluice
