#include "quant/format.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8};
constexpr WeightLayout kFormatLayouts[] = {WeightLayout::rows, WeightLayout::packed};

Weight placeholder(DType dtype, WeightLayout layout, int64_t rows, int64_t cols) {
  Weight w;
  w.format = {dtype, layout, ScaleKind::none};
  w.rows = rows;
  w.cols = cols;
  return w;
}

TEST(Format, EveryElementHasAPlaceOfItsOwnWithinTheWeight) {
  for (DType dtype : kTypes) {
    for (WeightLayout layout : kFormatLayouts) {
      const int64_t rows = 32, cols = 37, bytes = dtype_bytes(dtype);
      Weight w = placeholder(dtype, layout, rows, cols);
      std::set<int64_t> offsets;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) offsets.insert(element_offset(w, r, c));
      }
      EXPECT_EQ(offsets.size(), static_cast<size_t>(rows * cols));
      EXPECT_EQ(*offsets.begin(), 0);
      for (int64_t offset : offsets) EXPECT_EQ(offset % bytes, 0);
      EXPECT_LE(*offsets.rbegin() + bytes,
                static_cast<int64_t>(plane_bytes(w.format, Plane::codes, rows, cols)));
    }
  }
}

// The layouts as format.h draws them: rows across the 32-bit lanes of a cell.
TEST(Format, PackedElementsLieAcrossLanes) {
  const int64_t cols = 40;
  auto f32 = placeholder(DType::f32, WeightLayout::packed, 32, cols);
  auto bf16 = placeholder(DType::bf16, WeightLayout::packed, 32, cols);
  auto fp8 = placeholder(DType::f8_e4m3, WeightLayout::packed, 32, cols);
  auto i8 = placeholder(DType::i8, WeightLayout::packed, 32, cols);
  EXPECT_EQ(element_offset(i8, 7, 11), 2 * 64 + 7 * 4 + 3);
  EXPECT_EQ(element_offset(i8, 17, 2), 10 * 64 + 4 + 2);
  EXPECT_EQ(element_offset(f32, 3, 5), 5 * 64 + 3 * 4);
  EXPECT_EQ(element_offset(f32, 19, 5), 40 * 64 + 5 * 64 + 3 * 4);
  EXPECT_EQ(element_offset(bf16, 3, 5), 2 * 64 + 3 * 4 + 2);
  EXPECT_EQ(element_offset(bf16, 19, 4), 20 * 64 + 2 * 64 + 3 * 4);
  // (r / 4) * 16 + (k % 4 / 2) * 8 + (r % 4) * 2 + k % 2
  EXPECT_EQ(element_offset(fp8, 7, 11), 2 * 64 + 16 + 8 + 6 + 1);
  EXPECT_EQ(element_offset(fp8, 16, 2), 10 * 64 + 8);
}

TEST(Format, SizesIncludePadding) {
  WeightFormat bf16{DType::bf16, WeightLayout::packed, ScaleKind::none};
  WeightFormat block{DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_block};
  WeightFormat row{DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row};
  WeightFormat plain{DType::f8_e4m3, WeightLayout::rows, ScaleKind::per_row};
  EXPECT_EQ(plane_bytes(bf16, Plane::codes, 17, 3), 2u * 2 * 64);
  EXPECT_EQ(plane_bytes(bf16, Plane::scales, 17, 3), 0u);
  EXPECT_EQ(plane_bytes(block, Plane::codes, 130, 257), 9u * 65 * 64);
  EXPECT_EQ(plane_bytes(block, Plane::scales, 130, 257), 9u * 3 * 4);
  EXPECT_EQ(plane_bytes(row, Plane::scales, 130, 257), 9u * 16 * 4);
  EXPECT_EQ(plane_bytes(plain, Plane::codes, 130, 257), 130u * 257);
  EXPECT_EQ(plane_bytes(plain, Plane::scales, 130, 257), 130u * 4);
}

}  // namespace
}  // namespace sluice
