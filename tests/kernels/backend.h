// One backend with its threads and exactly the workspace that it asked for; the fixture that runs a
// test over every target: the instruction sets of the CPU in kernels_test, a GPU elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/instruction_sets.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "quant/matrix_layout.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"

namespace sluice::test {

// A GPU's kernels and encoder, for tests whose memory is the host's (cuda/mirrored.h).
struct Gpu {
  std::unique_ptr<Kernels> (*kernels)(Compute compute, const WorkspaceNeeds& needs);
  std::unique_ptr<Encoder> (*encoder)();
};

// An instruction set that a test runs on, a table of kernels that is for tests alone and needs the
// instruction set, or a GPU.
struct Target {
  Isa isa = Isa::automatic;
  const cpu::Ops* ops = nullptr;
  std::string name = std::string(isa_name(isa));
  std::optional<Isa> in_place_of = {};  // not run where the machine has it
  void (*prepare)() = nullptr;          // called before a test
  const Gpu* gpu = nullptr;
  float rounding = 0;  // what a term of a sum may be off by, beyond the rounding of float32

  // Null: the reference backend, which has none.
  const cpu::Ops* table() const { return ops != nullptr ? ops : find_instruction_set(isa).ops; }
  // The layout in which linear layers take their weights in a format.
  MatrixLayout matrix_layout() const {
    return gpu == nullptr ? MatrixLayout::packed : MatrixLayout::by_codes;
  }
  WeightLayout layout(const WeightFormat& format) const {
    return layout_of(matrix_layout(), format);
  }
  WeightLayout layout_of_groups() const {
    return layout({.dtype = DType::u8, .scales = ScaleKind::grouped});
  }
  WeightLayout layout(const QuantScheme& scheme, DType stored) const {
    return layout(scheme.format(stored, WeightLayout::packed));
  }
  // The size of a problem: `small` for a GPU, whose emulator computes a thousandth of what a CPU
  // does.
  int64_t size(int64_t usual, int64_t small) const { return gpu == nullptr ? usual : small; }
};
inline void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

struct Backend {
  // The workspace holds NaN of every type, so that what is used before it is written shows.
  Backend(Isa isa, Compute compute, const WorkspaceNeeds& needs, int threads = 1)
      : pool(threads),
        bytes(cpu_workspace_bytes(needs, threads)),
        workspace(aligned_bytes(bytes)),
        kernels(make_cpu_kernels(isa, compute, pool, {workspace.get(), bytes})),
        encoder(make_cpu_encoder(isa)) {
    std::memset(workspace.get(), 0xff, bytes);
  }
  Backend(const Target& target, Compute compute, const WorkspaceNeeds& needs, int threads = 1)
      : Backend(target.isa, compute, needs, threads) {
    if (target.gpu != nullptr) {
      kernels = target.gpu->kernels(compute, needs);
      encoder = target.gpu->encoder();
    }
    if (target.ops == nullptr) return;
    const std::span<std::byte> memory(workspace.get(), bytes);
    kernels = std::make_unique<CpuKernels>(*target.ops, compute, pool, memory, fetches_into_l1());
    encoder = std::make_unique<CpuEncoder>(*target.ops);
  }
  const Kernels* operator->() const { return kernels.get(); }

  ThreadPool pool;
  uint64_t bytes;
  AlignedBytes workspace;
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<Encoder> encoder;
};

// A float32 matrix; each row is followed by some elements that nobody may touch. Vectors of four
// fit rows of a multiple of eight elements, and of those alone.
class Matrix {
 public:
  static constexpr float kUntouched = -12345.5f;

  Matrix(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        stride_(cols + std::array{4, 3, 2, 1, 3, 4, 1, 6}[static_cast<size_t>(cols % 8)]),
        data_(static_cast<size_t>(rows * stride_), kUntouched) {}

  static Matrix random(int64_t rows, int64_t cols, Random& random, float sigma = 1) {
    Matrix m(rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.at(r, c) = random.normal(sigma);
    }
    return m;
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }
  float& at(int64_t r, int64_t c) { return data_[static_cast<size_t>(r * stride_ + c)]; }
  float at(int64_t r, int64_t c) const { return data_[static_cast<size_t>(r * stride_ + c)]; }
  Tensor tensor() {
    return {reinterpret_cast<std::byte*>(data_.data()), DType::f32, rows_, cols_, stride_};
  }
  bool gaps_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < stride_; ++c) {
        if (at(r, c) != kUntouched) return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_, cols_, stride_;
  std::vector<float> data_;
};

inline std::vector<float> random_vector(int64_t size, Random& random, float sigma = 1) {
  std::vector<float> x(static_cast<size_t>(size));
  for (float& v : x) v = random.normal(sigma);
  return x;
}

// `values` as a checkpoint's weight of such elements, encoded by the reference.
inline StoredWeight encoded(const QuantScheme& scheme, DType stored, WeightLayout layout,
                            const Matrix& values) {
  StoredWeight w(scheme.format(stored, layout), values.rows(), values.cols());
  w.weight.format.whole_blocks = w.weight.format.scales == ScaleKind::per_block;
  EncodeArgs args;
  args.source = const_cast<Matrix&>(values).tensor().data;
  args.stored = DType::f32;
  args.source_stride = values.stride() * 4;
  args.rows = values.rows();
  args.group = scheme.group;
  args.to = w.weight;
  args.tensor_amax =
      absolute_max(args.source, DType::f32, args.source_stride, args.rows, values.cols());
  encode_reference(args);
  return w;
}

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

// Returns the tolerance of sums of x times a weight's rows, from the largest sum of magnitudes.
inline float product_rounding(const Matrix& x, const Weight& w) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  float most = 0;
  for (int64_t o = 0; o < w.rows; ++o) {
    decode_row(w, o, row.data());
    for (int64_t r = 0; r < x.rows(); ++r) {
      float sum = 0;
      for (int64_t c = 0; c < w.cols; ++c)
        sum += std::abs(x.at(r, c) * row[static_cast<size_t>(c)]);
      most = std::max(most, sum);
    }
  }
  return 1e-5f * most + 1e-6f;
}

class EveryTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (const std::string missing = isa_missing(GetParam().isa); !missing.empty())
      GTEST_SKIP() << GetParam().name << " does not run here: " << missing;
    if (const auto own = GetParam().in_place_of; own && isa_supported(*own))
      GTEST_SKIP() << "this machine has " << isa_name(*own) << " itself";
    if (GetParam().prepare != nullptr) GetParam().prepare();
  }
};

// Defined by each program: its instruction sets (cpu_targets.cc), or its GPU (cuda/mirrored.cc).
std::vector<Target> every_target();
// The same, and AMX kernels on emulated tiles, for tests of ops that have such kernels.
std::vector<Target> every_target_and_tiles();

inline std::string target_name(const testing::TestParamInfo<Target>& info) {
  return info.param.name;
}

#define SLUICE_OVER_EVERY_TARGET(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::sluice::test::every_target()), \
                           ::sluice::test::target_name)
#define SLUICE_OVER_EVERY_TARGET_AND_TILES(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::sluice::test::every_target_and_tiles()), \
                           ::sluice::test::target_name)

}  // namespace sluice::test
