// Products that cuBLASLt offers and then refuses, by a stand-in for the library (fake_cublaslt.cc).
#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace sluice::cuda {
namespace {

class CublasLt : public testing::Test {
 protected:
  // The loader then finds the library that is there already.
  CublasLt() : fake_(dlopen(SLUICE_FAKE_CUBLASLT, RTLD_NOW)), gemm_(load_cublaslt()) {
    number("fake_multiplied") = number("fake_refuses") = 0;
  }
  int& number(const char* name) { return *static_cast<int*>(dlsym(fake_, name)); }
  void refuse(int times) { number("fake_refuses") = times; }
  int multiplied() { return number("fake_multiplied"); }

  Tensor y() { return {y_.data(), DType::f32, 4, 16, 16}; }
  bool bf16(int64_t cols) {
    return gemm_->multiply({nullptr, 4, cols}, {nullptr, 16, cols}, y(), workspace_, nullptr);
  }
  bool e4m3() { return gemm_->multiply_e4m3(x_, w_, y(), workspace_, nullptr); }

  void* fake_;
  std::unique_ptr<Gemm> gemm_;
  std::vector<std::byte> y_ = std::vector<std::byte>(4 * 16 * 4);
  std::vector<std::byte> workspace_ = std::vector<std::byte>(kGemmWorkspace);
  E4M3Matrix x_{nullptr, 4, 128}, w_{nullptr, 16, 128};
};

TEST_F(CublasLt, AWayThatIsRefusedIsTriedOnce) {
  refuse(1);
  EXPECT_TRUE(bf16(64));
  EXPECT_EQ(multiplied(), 2);
  EXPECT_TRUE(bf16(64));
  EXPECT_EQ(multiplied(), 3);
}

TEST_F(CublasLt, AProductWhoseWaysAreAllRefusedIsNotTriedAgain) {
  refuse(2);
  EXPECT_FALSE(bf16(64));
  EXPECT_FALSE(bf16(64));
  EXPECT_EQ(multiplied(), 2);
  EXPECT_TRUE(bf16(128));  // another shape
  refuse(2);
  int32_t sums[4 * 16];
  EXPECT_FALSE(gemm_->multiply_i8({nullptr, 4, 64}, {nullptr, 16, 64}, sums, workspace_, nullptr));
}

TEST_F(CublasLt, ProductsOfTooManyShapesAreForgotten) {
  refuse(2);
  EXPECT_FALSE(bf16(64));
  for (int64_t cols = 65; cols < 1500; ++cols) EXPECT_TRUE(bf16(cols));
  EXPECT_TRUE(bf16(64));  // is tried again
}

TEST_F(CublasLt, OfCodesItSaysWhatIsLeft) {
  EXPECT_EQ(gemm_->product_of(x_, w_, y()), E4M3Product::scaled);
  refuse(2);
  EXPECT_FALSE(e4m3());
  EXPECT_EQ(gemm_->product_of(x_, w_, y()), E4M3Product::sums);
  EXPECT_TRUE(e4m3());
  refuse(2);
  EXPECT_FALSE(e4m3());
  EXPECT_EQ(gemm_->product_of(x_, w_, y()), E4M3Product::none);
}

TEST_F(CublasLt, OfCodesWithScalesOfBlocksNothingIsLeft) {
  x_.by_block = w_.by_block = true;
  EXPECT_EQ(gemm_->product_of(x_, w_, y()), E4M3Product::scaled);
  refuse(2);
  EXPECT_FALSE(e4m3());
  EXPECT_EQ(gemm_->product_of(x_, w_, y()), E4M3Product::none);
}

}  // namespace
}  // namespace sluice::cuda
