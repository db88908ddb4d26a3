#include "src/base/dtype.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// GGML_QUANT_SIZES of gguf-py 0.17; Q8_1 and Q8_K exist between kernels only, never in a file.
struct Size {
  DType dtype;
  const char* name;
  int elements;
  int bytes;
};
constexpr Size kGgufSizes[] = {
    {DType::f32, "F32", 1, 4},
    {DType::f16, "F16", 1, 2},
    {DType::q4_0, "Q4_0", 32, 18},
    {DType::q4_1, "Q4_1", 32, 20},
    {DType::q5_0, "Q5_0", 32, 22},
    {DType::q5_1, "Q5_1", 32, 24},
    {DType::q8_0, "Q8_0", 32, 34},
    {DType::q2_k, "Q2_K", 256, 84},
    {DType::q3_k, "Q3_K", 256, 110},
    {DType::q4_k, "Q4_K", 256, 144},
    {DType::q5_k, "Q5_K", 256, 176},
    {DType::q6_k, "Q6_K", 256, 210},
    {DType::iq2_xxs, "IQ2_XXS", 256, 66},
    {DType::iq2_xs, "IQ2_XS", 256, 74},
    {DType::iq3_xxs, "IQ3_XXS", 256, 98},
    {DType::iq1_s, "IQ1_S", 256, 50},
    {DType::iq4_nl, "IQ4_NL", 32, 18},
    {DType::iq3_s, "IQ3_S", 256, 110},
    {DType::iq2_s, "IQ2_S", 256, 82},
    {DType::iq4_xs, "IQ4_XS", 256, 136},
    {DType::i8, "I8", 1, 1},
    {DType::i16, "I16", 1, 2},
    {DType::i32, "I32", 1, 4},
    {DType::i64, "I64", 1, 8},
    {DType::f64, "F64", 1, 8},
    {DType::iq1_m, "IQ1_M", 256, 56},
    {DType::bf16, "BF16", 1, 2},
    {DType::tq1_0, "TQ1_0", 256, 54},
    {DType::tq2_0, "TQ2_0", 256, 66},
    {DType::e2m1_e8m0, "MXFP4", 32, 17},
    {DType::e2m1_e4m3, "NVFP4", 64, 36},
    {DType::q1_0, "Q1_0", 128, 18},
    {DType::q2_0, "Q2_0", 64, 18},
};

TEST(DType, BlocksAreAsGgufHasThem) {
  for (const Size& size : kGgufSizes) {
    const StoredType& type = stored_type(size.dtype);
    EXPECT_EQ(type.name, size.name);
    EXPECT_EQ(type.block_elements, size.elements) << size.name;
    EXPECT_EQ(type.block_bytes, size.bytes) << size.name;
    EXPECT_EQ(row_bytes(size.dtype, 3 * size.elements), 3u * static_cast<uint64_t>(size.bytes));
  }
}

TEST(DType, NamesOfSafetensorsLeadBack) {
  for (int i = 0; i <= static_cast<int>(DType::e2m1_e4m3); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype <= DType::f6_e3m2)
      EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    else
      EXPECT_EQ(parse_dtype(dtype_name(dtype)), std::nullopt) << dtype_name(dtype);
  }
  EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
}

TEST(DType, StoredBytesFollowFromBlocks) {
  EXPECT_EQ(stored_bytes(DType::bf16, {3, 5}), 30u);
  EXPECT_EQ(stored_bytes(DType::f32, {}), 4u);
  EXPECT_EQ(stored_bytes(DType::f4, {3, 6}), 9u);
  EXPECT_EQ(stored_bytes(DType::q4_k, {7, 512}), 7u * 2 * 144);
  EXPECT_EQ(stored_bytes(DType::q4_k, {2, 7, 512}), 2u * 7 * 2 * 144);
  EXPECT_EQ(stored_bytes(DType::f64, {int64_t{1} << 61}), std::nullopt);
  EXPECT_EQ(stored_bytes(DType::q4_0, {int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(stored_bytes(DType::q8_0, {int64_t{1} << 62}), (uint64_t{1} << 57) * 34);
}

TEST(DType, RowsThatEndInsideABlockAreSeen) {
  EXPECT_TRUE(has_whole_blocks(DType::f32, {}));
  EXPECT_FALSE(has_whole_blocks(DType::q8_0, {}));
  EXPECT_FALSE(has_whole_blocks(DType::q8_0, {32, 48}));  // whole as a total, not by row
  EXPECT_TRUE(has_whole_blocks(DType::q8_0, {3, 64}));
  EXPECT_TRUE(has_whole_blocks(DType::q8_0, {3, 0}));
}

}  // namespace
}  // namespace sluice
