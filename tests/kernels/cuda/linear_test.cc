// Linear layers of many rows, by products of the vendor's library and those that take their place.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/linear_many.h"
#include "quant/float8.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using cuda::E4M3Product;
using test::Buffer;
using test::DeviceMatrix;
using test::DeviceWeight;
using test::Matrix;
using test::Random;
using test::stream;

// The reference's linear takes packed weights: the same values, encoded for it.
Matrix reference_linear(const QuantScheme& scheme, DType stored, const Matrix& values,
                        const Matrix& x, const float* bias, Compute compute) {
  test::StoredWeight packed = encoded(scheme, stored, WeightLayout::packed, values);
  Matrix from = x, padded(x.rows(), packed.weight.rows), y(x.rows(), values.rows());
  std::vector<float> padded_bias(static_cast<size_t>(packed.weight.rows));
  if (bias != nullptr) std::copy_n(bias, values.rows(), padded_bias.begin());
  ReferenceKernels(compute).linear(from.tensor(), packed.weight,
                                   bias == nullptr ? nullptr : padded_bias.data(), padded.tensor());
  for (int64_t r = 0; r < y.rows(); ++r) {
    for (int64_t c = 0; c < y.cols(); ++c) y.at(r, c) = padded.at(r, c);
  }
  return y;
}

struct Size {
  int64_t rows, cols, tokens;  // of whole panels
};

// A library that offers scaled products of codes and refuses the first, then offers what is left.
class Refusing final : public cuda::Gemm {
 public:
  Refusing(E4M3Product left, bool refuses_others)
      : left_(test::make_gemm(left)), others_(!refuses_others) {}
  bool multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream to) override {
    return others_ && left_->multiply(x, w, y, workspace, to);
  }
  E4M3Product product_of(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w, Tensor y) override {
    return refused == 0 ? E4M3Product::scaled : left_->product_of(x, w, y);
  }
  bool multiply_e4m3(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w, Tensor y,
                     std::span<std::byte> workspace, cuda::Stream to) override {
    return refused++ > 0 && left_->multiply_e4m3(x, w, y, workspace, to);
  }
  bool multiply_i8(const cuda::I8Matrix& x, const cuda::I8Matrix& w, int32_t* y,
                   std::span<std::byte> workspace, cuda::Stream to) override {
    return others_ && left_->multiply_i8(x, w, y, workspace, to);
  }
  int refused = 0;

 private:
  std::unique_ptr<cuda::Gemm> left_;
  bool others_;
};

// Returns the tolerance of a sum, as a share of its terms. Blocks' scales are rounded to bf16
// together with the codes, unless the library multiplies by them.
float rounding_of_many(const Weight& w, const Tensor& y, cuda::Gemm& gemm) {
  const bool codes = w.format.quantized_input;
  if (w.format.scales == ScaleKind::per_block) {
    if (!codes) return 4e-3f;
    const auto* data = reinterpret_cast<const uint8_t*>(w.data);
    const int64_t rows = y.rows / 4 * 4;
    const bool scaled = w.cols % 128 == 0 && w.rows % 16 == 0 &&
                        gemm.product_of({data, rows, w.cols, w.scales, true},
                                        {data, w.rows, w.cols, w.scales, true},
                                        y.rows_from(0, rows)) == E4M3Product::scaled;
    if (!scaled) return 8e-3f;
  }
  return codes ? test::kE4M3SumRounding : test::kSumRounding;
}

// Many rows: bf16 by the library alone, E4M3 and i8 decoded before, a tile of rows at a time; codes
// of E4M3 times such codes as they are, where the library can and vectors fit.
TEST(CudaLinear, ManyRowsEqualTheReference) {
  Random random("CudaLinear.ManyRowsEqualTheReference");
  const std::pair<E4M3Product, std::unique_ptr<cuda::Gemm>> libraries[] = {
      {E4M3Product::none, test::make_gemm(E4M3Product::none)},
      {E4M3Product::sums, test::make_gemm(E4M3Product::sums)},
      {E4M3Product::scaled, test::make_gemm(E4M3Product::scaled)}};
  for (const Size& size :
       {Size{16, 128, 17}, Size{48, 240, 19}, Size{48, 272, 20}, Size{304, 70, 40}, Size{16, 1, 33},
        Size{272, 640, 18}, Size{128, 512, 17}, Size{144, 384, 24}, Size{256, 640, 31},
        Size{16 * random.between(1, 13), random.between(1, 300), 18}}) {
    Matrix values = Matrix::random(size.rows, size.cols, random, 0.3f);
    Matrix x = Matrix::random(size.tokens, size.cols, random);
    Buffer<float> bias(static_cast<size_t>(size.rows));
    for (float& b : bias.span()) b = random.normal();
    Buffer<std::byte> workspace(cuda::linear_many_workspace_bytes(size.tokens, size.cols));
    for (const QuantScheme& scheme : element_schemes()) {
      DeviceWeight w(scheme, DType::bf16, values);
      if (!cuda::linear_many_fits(w.weight, Compute::bf16) || test::leaves_out(random)) continue;
      const bool add = random.between(0, 1) == 1;
      const Matrix expected = reference_linear(scheme, DType::bf16, values, x,
                                               add ? bias.host() : nullptr, Compute::bf16);
      const WeightFormat& format = w.weight.format;
      for (const auto& [product, gemm] : libraries) {
        if (product != E4M3Product::scaled && !format.quantized_input) continue;
        SCOPED_TRACE(testing::Message()
                     << scheme.name << ", " << size.tokens << " rows times " << size.rows << " x "
                     << size.cols << ", " << static_cast<int>(product));
        // Whole rows of y begin at multiples of 16 bytes, as those of activations do.
        DeviceMatrix from(x, 1), to(size.tokens, size.rows, 4);
        EXPECT_TRUE(cuda::linear_many_rows(from.tensor(), w.weight, add ? bias.data() : nullptr,
                                           *gemm, workspace.on_device(), to.tensor(), stream()));
        EXPECT_TRUE(to.gaps_untouched());
        if (format.dtype == DType::i8) {
          EXPECT_TRUE(same_bits(to.copy(), expected));
          continue;
        }
        // With few columns one product may be far above the others.
        const float columns = 2 + std::sqrt(static_cast<float>(size.cols));
        const float rounding = rounding_of_many(w.weight, to.tensor(), *gemm);
        expect_near(to.copy(), expected, rounding * columns, test::kSumRounding);
      }
    }
  }
}

// Wide enough that a tile holds some of the weight's rows only.
TEST(CudaLinear, ManyRowsOfI8InTilesEqualTheReference) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  Random random("CudaLinear.ManyRowsOfI8InTilesEqualTheReference");
  const QuantScheme scheme = *find_quant_scheme("int8");
  Matrix values = Matrix::random(144, 70001, random, 0.3f);
  Matrix x = Matrix::random(17, 70001, random);
  for (int64_t c = 0; c < values.cols(); ++c) values.at(129, c) = x.at(16, c);  // a large sum
  DeviceWeight w(scheme, DType::bf16, values);
  Buffer<std::byte> workspace(cuda::linear_many_workspace_bytes(17, values.cols()));
  DeviceMatrix from(x, 0), to(17, 144, 0);
  EXPECT_TRUE(cuda::linear_many_rows(from.tensor(), w.weight, nullptr,
                                     *test::make_gemm(E4M3Product::scaled), workspace.on_device(),
                                     to.tensor(), stream()));
  EXPECT_TRUE(same_bits(to.copy(),
                        reference_linear(scheme, DType::bf16, values, x, nullptr, Compute::bf16)));
  // A library without products of integers is reported.
  EXPECT_FALSE(cuda::linear_many_rows(from.tensor(), w.weight, nullptr,
                                      *test::make_gemm(E4M3Product::none), workspace.on_device(),
                                      to.tensor(), stream()));
}

TEST(CudaLinear, WhatTheLibraryRefusesIsComputedAnotherWay) {
  Random random("CudaLinear.WhatTheLibraryRefusesIsComputedAnotherWay");
  constexpr int64_t kRows = 32, kCols = 256, kTokens = 20;
  const Matrix values = Matrix::random(kRows, kCols, random, 0.3f);
  const Matrix x = Matrix::random(kTokens, kCols, random);
  Buffer<std::byte> workspace(cuda::linear_many_workspace_bytes(kTokens, kCols));
  for (const QuantScheme& scheme : element_schemes()) {
    DeviceWeight w(scheme, DType::bf16, values);
    if (!cuda::linear_many_fits(w.weight, Compute::bf16)) continue;
    const Matrix expected =
        reference_linear(scheme, DType::bf16, values, x, nullptr, Compute::bf16);
    for (E4M3Product left : {E4M3Product::sums, E4M3Product::none}) {
      for (bool others : {false, true}) {
        SCOPED_TRACE(testing::Message() << scheme.name << static_cast<int>(left) << others);
        Refusing gemm(left, others);
        DeviceMatrix from(x, 0), to(kTokens, kRows, 0);
        const bool possible = cuda::linear_many_rows(from.tensor(), w.weight, nullptr, gemm,
                                                     workspace.on_device(), to.tensor(), stream());
        const bool integers = w.weight.format.dtype == DType::i8;
        EXPECT_EQ(gemm.refused > 0, w.weight.format.quantized_input && !integers);
        if (left == E4M3Product::none) {
          EXPECT_EQ(possible, !others && !integers);
        }
        if (possible) expect_near(to.copy(), expected, 8e-3f * 18, test::kSumRounding);
      }
    }
  }
}

// Tests sizes at which the library's own products might go wrong: every kind of weight beside
// linear_few_rows, which reads the same codes.
TEST(CudaLinear, ManyRowsEqualFewRows) {
  Random random("CudaLinear.ManyRowsEqualFewRows");
  const std::unique_ptr<cuda::Gemm> gemm = test::make_gemm(E4M3Product::scaled);
  for (const test::ProductSize& size : test::product_sizes()) {
    const Matrix x = Matrix::random(size.tokens, size.cols, random);
    Buffer<std::byte> workspace(cuda::linear_many_workspace_bytes(size.tokens, size.cols));
    for (const QuantScheme& scheme : element_schemes()) {
      if (test::leaves_out(random)) continue;
      DeviceWeight w(scheme, DType::bf16, size.rows, size.cols);
      if (!cuda::linear_many_fits(w.weight, Compute::bf16)) continue;
      SCOPED_TRACE(testing::Message() << scheme.name << ", " << size.tokens << " rows times "
                                      << size.rows << " x " << size.cols);
      w.fill(random);
      const int64_t outputs = w.weight.rows;
      DeviceMatrix from(x, 0), to(size.tokens, outputs, 0), few(size.tokens, outputs, 0);
      EXPECT_TRUE(cuda::linear_many_rows(from.tensor(), w.weight, nullptr, *gemm,
                                         workspace.on_device(), to.tensor(), stream()));
      for (int64_t row = 0; row < size.tokens; row += cuda::kFewRows) {
        const int64_t rows = std::min(cuda::kFewRows, size.tokens - row);
        cuda::linear_few_rows(from.tensor().rows_from(row, rows), w.weight, nullptr, Compute::bf16,
                              workspace.data(), few.tensor().rows_from(row, rows), stream());
      }
      if (w.weight.format.dtype == DType::i8) {
        EXPECT_TRUE(same_bits(to.copy(), few.copy()));
      } else {
        const float rounding = rounding_of_many(w.weight, to.tensor(), *gemm);
        const float columns = 2 + std::sqrt(static_cast<float>(size.cols));
        expect_near(to.copy(), few.copy(), 2 * rounding * columns, 2 * test::kSumRounding);
      }
    }
  }
}

TEST(CudaLinear, ManyRowsTakeWhatBf16HoldsAndI8) {
  for (auto [dtype, compute, fits] : {std::tuple{DType::bf16, Compute::bf16, true},
                                      {DType::f8_e4m3, Compute::bf16, true},
                                      {DType::bf16, Compute::f32, false},
                                      {DType::f16, Compute::bf16, false},
                                      {DType::i8, Compute::bf16, true},
                                      {DType::i8, Compute::f32, true}}) {
    DeviceWeight w(with_layout(MatrixLayout::by_codes, {.dtype = dtype}), 16, 16);
    EXPECT_EQ(cuda::linear_many_fits(w.weight, compute), fits) << dtype_name(dtype);
  }
  DeviceWeight dynamic({DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row, true}, 16, 16);
  EXPECT_TRUE(cuda::linear_many_fits(dynamic.weight, Compute::f32));
  // The plan for the widest layer is enough for the others.
  for (int64_t cols : {1, 100, 4096, 5000, 65536, 70000})
    for (int64_t rows : {17, 100, 512})
      EXPECT_LE(cuda::linear_many_workspace_bytes(rows, cols),
                cuda::linear_many_workspace_bytes(512, 70000));
}

// Every code and every block's scale, from any panel on.
TEST(CudaLinear, DecodesRowsToBf16) {
  Random random("CudaLinear.DecodesRowsToBf16");
  for (int64_t cols : {int64_t{256}, int64_t{200}, random.between(1, 300)}) {
    for (const char* name : {"none", "fp8_per_channel", "fp8_per_block"}) {
      const QuantScheme scheme = *find_quant_scheme(name);
      DeviceWeight w(scheme, DType::bf16, Matrix::random(160, cols, random));
      for (int64_t i = 0; scheme.group != ScaleGroup::none && i < std::min<int64_t>(cols, 254); ++i)
        w.data[static_cast<size_t>(i)] = static_cast<std::byte>(i + (i > 126));  // but for NaN
      for (int64_t first : {0, 16, 144}) {
        const int64_t rows = std::min<int64_t>(48, 160 - first);
        Buffer<uint16_t> to(static_cast<size_t>(rows * cols));
        cuda::decode_rows(w.weight, first, rows, to.data(), stream());
        for (int64_t i = 0; i < rows * cols; ++i) {
          const int64_t r = first + i / cols, c = i % cols;
          float value = decode_element(w.host(), r, c);
          if (scheme.group == ScaleGroup::row) value /= w.scales[static_cast<size_t>(r)];
          ASSERT_EQ(to[static_cast<size_t>(i)], float_to_bf16(value)) << r << " " << c;
        }
      }
    }
  }
}

// Codes of E4M3 and of i8 as the library takes them; i8 with zeros behind the last row and column.
TEST(CudaLinear, PutsCodesIntoPlainRows) {
  Random random("CudaLinear.PutsCodesIntoPlainRows");
  for (int64_t cols : {int64_t{256}, int64_t{200}, random.between(1, 300)}) {
    for (const char* name : {"fp8_per_channel", "int8"}) {
      DeviceWeight w(*find_quant_scheme(name), DType::bf16, Matrix::random(160, cols, random));
      const bool integers = w.weight.format.dtype == DType::i8;
      for (int64_t first : {0, 16, 144}) {
        const int64_t rows = std::min<int64_t>(48, 160 - first), more = integers ? 16 : 0;
        const int64_t to_cols = integers ? ceil_div(cols, 16) * 16 : cols;
        Buffer<uint8_t> to(static_cast<size_t>((rows + more) * to_cols));
        if (integers) {
          auto* codes = reinterpret_cast<int8_t*>(to.data());
          cuda::decode_rows_i8(w.weight, first, rows, {codes, rows + more, to_cols}, stream());
        } else {
          cuda::unpack_rows(w.weight, first, rows, to.data(), stream());
        }
        for (int64_t i = 0; i < (rows + more) * to_cols; ++i) {
          const int64_t r = i / to_cols, c = i % to_cols;
          const bool there = r < rows && c < cols;
          uint8_t code = 0;
          if (there)
            code = static_cast<uint8_t>(
                w.data[static_cast<size_t>(element_offset(w.host(), first + r, c))]);
          if (there && integers) code ^= 0x80;
          ASSERT_EQ(to[static_cast<size_t>(i)], code) << r << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
