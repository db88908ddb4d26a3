// One backend with its threads and exactly the workspace that it asked for; the fixture that runs a
// test over every instruction set.
#pragma once

#include <gtest/gtest.h>

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
#include "tests/kernels/emulated_amx.h"
#include "tests/kernels/trapped_tiles.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"

#if defined(__x86_64__)
namespace sluice::cpu::emulated_avx512 {  // the code of avx512_bf16 (emulated_avx512.h)
extern const Ops kOps;
}
#endif

namespace sluice::test {

// What a test runs on: an instruction set, or a table of kernels that is for tests alone and takes
// the instruction set as what it needs.
struct Target {
  Isa isa = Isa::automatic;
  const cpu::Ops* ops = nullptr;
  std::string name = std::string(isa_name(isa));
  std::optional<Isa> in_place_of = {};  // not run where the machine has it
  bool trapped = false;  // takes tile instructions that the machine lacks (trapped_tiles.h)

  // Null: the reference backend, which has none.
  const cpu::Ops* table() const { return ops != nullptr ? ops : find_instruction_set(isa).ops; }
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

// What sums of x times a weight's rows may differ by: relative to the largest sum of magnitudes.
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

class EveryIsa : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (const std::string missing = isa_missing(GetParam().isa); !missing.empty())
      GTEST_SKIP() << GetParam().name << " does not run here: " << missing;
    if (const auto own = GetParam().in_place_of; own && isa_supported(*own))
      GTEST_SKIP() << "this machine has " << isa_name(*own) << " itself";
    if (GetParam().trapped) trap_tiles();
  }
};

// Sanitized builds take what this machine runs best, and the portable form of the same sources.
inline std::vector<Target> every_isa() {
  const Isa best = find_instruction_set(Isa::automatic).isa;
  std::vector<Target> targets;
  for (Isa isa : all_isas())
    if (!kSanitized || isa == best || isa == Isa::portable) targets.push_back({isa});
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
  targets.push_back({Isa::avx2, &cpu::emulated_avx512::kOps, "emulated_avx512", Isa::avx512_bf16});
#endif
  return targets;
}

// AMX kernels on emulated tiles: their source, and their machine code.
inline std::vector<Target> emulated_amx() {
  return {
      {Isa::portable, &cpu::portable::kEmulatedAmx, "over_portable"},
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
      {Isa::avx512_bf16, &cpu::avx512_bf16::kEmulatedAmx, "over_avx512_bf16"},
      {Isa::avx2, &cpu::emulated_avx512::kEmulatedAmx, "over_emulated_avx512", Isa::avx512_bf16},
      {Isa::avx512_bf16, &cpu::amx::kOps, "trapped", Isa::amx, true},
#endif
  };
}

inline std::string target_name(const testing::TestParamInfo<Target>& info) {
  return info.param.name;
}

#define SLUICE_OVER_EVERY_ISA(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::sluice::test::every_isa()), \
                           ::sluice::test::target_name)

}  // namespace sluice::test
