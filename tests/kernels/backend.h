// One backend with its threads and exactly the workspace that it asked for; the fixture that runs a
// test over every instruction set.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice::test {

struct Backend {
  Backend(Isa isa, Compute compute, const WorkspaceNeeds& needs, int threads = 1)
      : pool(threads),
        bytes(cpu_workspace_bytes(needs, threads)),
        workspace(aligned_bytes(bytes)),
        kernels(make_cpu_kernels(isa, compute, pool, {workspace.get(), bytes})) {}
  const Kernels* operator->() const { return kernels.get(); }

  ThreadPool pool;
  uint64_t bytes;
  AlignedBytes workspace;
  std::unique_ptr<Kernels> kernels;
};

// A float32 matrix; each row is followed by some elements that nobody may touch.
class Matrix {
 public:
  static constexpr int64_t kGap = 3;
  static constexpr float kUntouched = -12345.5f;

  Matrix(int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols), data_(static_cast<size_t>(rows * (cols + kGap)), kUntouched) {}

  static Matrix random(int64_t rows, int64_t cols, Random& random, float sigma = 1) {
    Matrix m(rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.at(r, c) = random.normal(sigma);
    }
    return m;
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float& at(int64_t r, int64_t c) { return data_[static_cast<size_t>(r * (cols_ + kGap) + c)]; }
  float at(int64_t r, int64_t c) const {
    return data_[static_cast<size_t>(r * (cols_ + kGap) + c)];
  }
  Tensor tensor() {
    return {reinterpret_cast<std::byte*>(data_.data()), DType::f32, rows_, cols_, cols_ + kGap};
  }
  bool gaps_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < cols_ + kGap; ++c) {
        if (at(r, c) != kUntouched) return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_, cols_;
  std::vector<float> data_;
};

inline bool same_bits(const Matrix& a, const Matrix& b) {
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t c = 0; c < a.cols(); ++c) {
      if (std::bit_cast<uint32_t>(a.at(r, c)) != std::bit_cast<uint32_t>(b.at(r, c))) return false;
    }
  }
  return true;
}

// |a - b| <= absolute + relative |b|, everywhere.
inline void expect_near(const Matrix& a, const Matrix& b, float absolute, float relative) {
  ASSERT_EQ(a.rows(), b.rows());
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t c = 0; c < a.cols(); ++c) {
      ASSERT_NEAR(a.at(r, c), b.at(r, c), absolute + relative * std::abs(b.at(r, c)))
          << "row " << r << ", column " << c;
    }
  }
  EXPECT_TRUE(a.gaps_untouched());
}

class EveryIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam())) GTEST_SKIP() << "this machine lacks the instruction set";
  }
};

inline std::string isa_name(const testing::TestParamInfo<Isa>& info) {
  for (const char* name : {"reference", "portable", "avx2", "avx512_bf16"}) {
    if (parse_isa(name) == info.param) return name;
  }
  return "unknown";
}

#define SLUICE_OVER_EVERY_ISA(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(                                                                 \
      , suite, testing::Values(Isa::reference, Isa::portable, Isa::avx2, Isa::avx512_bf16), \
      ::sluice::test::isa_name)

}  // namespace sluice::test
