#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/linear_support.h"

namespace sluice {
namespace {

using test::Backend;
using test::expect_product;
using test::Kind;
using test::kKinds;
using test::Matrix;
using test::Random;
using test::random_weight;
using test::rounded;
using test::StoredWeight;

constexpr Compute kComputes[] = {Compute::bf16, Compute::f32};

WorkspaceNeeds needs(int64_t rows, int64_t cols) { return {rows, cols, 8}; }

class Linear : public test::EveryIsa {};

TEST_P(Linear, EqualsTheProductInFloat64) {
  Random random("Linear.EqualsTheProductInFloat64");
  for (const Kind& kind : kKinds) {
    for (Compute compute : kComputes) {
      for (int i = 0; i < 4; ++i) {
        const int64_t n = random.between(1, 40), cols = random.between(1, 700);
        const int64_t rows = random.between(1, 90);
        StoredWeight w = random_weight(kind, rows, cols, random);
        Matrix x = Matrix::random(n, cols, random), y(n, w.weight.rows);
        std::vector<float> bias(static_cast<size_t>(w.weight.rows));
        for (float& b : bias) b = random.normal();
        const float* bias_or_null = i % 2 == 0 ? bias.data() : nullptr;
        Backend backend(GetParam(), compute, needs(n, cols), 2);
        backend->linear(x.tensor(), w.weight, bias_or_null, y.tensor());
        SCOPED_TRACE(fmt::format("{} {} n {} rows {} cols {}", dtype_name(w.weight.format.dtype),
                                 static_cast<int>(kind.group), n, rows, cols));
        expect_product(rounded(x, w.weight.format, compute), w.weight, bias_or_null, y);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// However panels are divided among threads, and side by side, they are all multiplied, and put
// where they belong.
TEST_P(Linear, EveryNumberOfPanelsIsMultiplied) {
  Random random("Linear.EveryNumberOfPanelsIsMultiplied");
  constexpr int64_t kCols = 40;
  const Kind kinds[] = {{DType::bf16, ScaleGroup::none},
                        {DType::bf16, ScaleGroup::row},
                        {DType::bf16, ScaleGroup::block},
                        {DType::bf16, ScaleGroup::row, DType::i8}};
  for (int64_t panels = 1; panels <= 18; ++panels) {
    const Kind& kind = kinds[panels % 4];
    StoredWeight w = random_weight(kind, panels * kPanelRows, kCols, random);
    std::vector<float> bias(static_cast<size_t>(w.weight.rows));
    for (float& b : bias) b = random.normal();
    for (int64_t n : {1, 4, 7, 13, 20}) {  // four, two and one panels side by side, and a block
      Matrix x = Matrix::random(n, kCols, random), y(n, w.weight.rows);
      for (int threads = 1; threads <= 3; ++threads) {
        Backend(GetParam(), Compute::bf16, needs(n, kCols), threads)
            ->linear(x.tensor(), w.weight, bias.data(), y.tensor());
        SCOPED_TRACE(fmt::format("{} panels, {} rows, {} threads", panels, n, threads));
        expect_product(rounded(x, w.weight.format, Compute::bf16), w.weight, bias.data(), y);
        if (HasFailure()) return;
        y = Matrix(n, w.weight.rows);
      }
    }
  }
}

TEST_P(Linear, PaddingRowsGiveZero) {
  Random random("Linear.PaddingRowsGiveZero");
  for (const Kind& kind : kKinds) {
    StoredWeight w = random_weight(kind, 19, 37, random);
    Matrix x = Matrix::random(3, 37, random), y(3, 32);
    Backend(GetParam(), Compute::bf16, needs(3, 37))
        ->linear(x.tensor(), w.weight, nullptr, y.tensor());
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t o = 19; o < 32; ++o) EXPECT_EQ(y.at(r, o), 0.0f);
    }
  }
}

// The promise on which batching, chunking and preemption rest: bit for bit the same, alone or among
// others, whatever the number of threads.
TEST_P(Linear, ARowDoesNotDependOnOtherRowsOrThreads) {
  Random random("Linear.ARowDoesNotDependOnOtherRowsOrThreads");
  for (const Kind& kind : kKinds) {
    for (Compute compute : kComputes) {
      const int64_t n = GetParam().isa == Isa::reference ? 20 : random.between(241, 260);
      const int64_t cols = random.between(500, 640);
      StoredWeight w = random_weight(kind, 48, cols, random);
      Matrix x = Matrix::random(n, cols, random), all(n, 48), again(n, 48);
      Backend(GetParam(), compute, needs(n, cols), 1)
          ->linear(x.tensor(), w.weight, nullptr, all.tensor());
      Backend threads(GetParam(), compute, needs(n, cols), 3);
      for (int64_t row = 0; row < n;) {
        const int64_t count = std::min(n - row, random.between(1, 30));
        threads->linear(x.tensor().rows_from(row, count), w.weight, nullptr,
                        again.tensor().rows_from(row, count));
        row += count;
      }
      EXPECT_TRUE(same_bits(all, again)) << dtype_name(w.weight.format.dtype);
      for (int64_t row = 0; row < n; row += 7) {
        threads->linear(x.tensor().rows_from(row, 1), w.weight, nullptr,
                        again.tensor().rows_from(row, 1));
      }
      EXPECT_TRUE(same_bits(all, again)) << dtype_name(w.weight.format.dtype);
    }
  }
}

// All 256 codes, subnormals and NaN among them, mean what float8.h says.
TEST_P(Linear, EveryE4M3CodeIsDecodedExactly) {
  for (Compute compute : kComputes) {
    WeightFormat format{DType::f8_e4m3, WeightLayout::packed, ScaleKind::per_row};
    StoredWeight w(format, 256, 4);
    std::fill_n(w.weight.scales, 256, 1.0f);
    std::fill_n(w.weight.data, plane_bytes(format, Plane::codes, 256, 4), std::byte{0});
    for (int64_t code = 0; code < 256; ++code) {
      w.weight.data[element_offset(w.weight, code, code % 4)] = static_cast<std::byte>(code);
    }
    for (int64_t rows : {1, 24}) {  // decoded while multiplying, and ahead
      Matrix x(rows, 4), y(rows, 256);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < 4; ++c) x.at(row, c) = 1;
      }
      Backend(GetParam(), compute, needs(rows, 4))
          ->linear(x.tensor(), w.weight, nullptr, y.tensor());
      for (int64_t i = 0; i < rows * 256; ++i) {
        const int64_t row = i / 256, code = i % 256;
        const float value = e4m3_to_float(static_cast<uint8_t>(code));
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(y.at(row, code))) << row << ' ' << code;
        } else {
          EXPECT_EQ(y.at(row, code), value) << row << ' ' << code;
        }
      }
    }
  }
}

// Of the two ways a machine takes one (kernels/cpu/features.h).
TEST_P(Linear, TheCacheThatWeightsAreFetchedIntoChangesNothing) {
  const cpu::Ops* ops = GetParam().table();
  if (ops == nullptr) GTEST_SKIP() << "the reference backend fetches nothing";
  Random random("Linear.TheCacheThatWeightsAreFetchedIntoChangesNothing");
  for (const Kind& kind : kKinds) {
    for (int64_t rows = 1; rows <= 16; ++rows) {
      const int64_t cols = random.between(1, 700), outputs = 16 * random.between(1, 13);
      StoredWeight w = random_weight(kind, outputs, cols, random);
      Matrix x = Matrix::random(rows, cols, random), l1(rows, outputs), l2(rows, outputs);
      Backend memory(GetParam(), Compute::bf16, needs(rows, cols));
      const std::span<std::byte> bytes(memory.workspace.get(), memory.bytes);
      for (Matrix* y : {&l1, &l2}) {
        CpuKernels(*ops, Compute::bf16, memory.pool, bytes, y == &l1)
            .linear(x.tensor(), w.weight, nullptr, y->tensor());
      }
      EXPECT_TRUE(same_bits(l1, l2)) << rows << " rows";
    }
  }
}

// The largest codes of either sign, in as many columns as may be: no sum overflows or saturates.
TEST_P(Linear, Int8SumsAreExact) {
  const int64_t cols = GetParam().isa == Isa::reference ? 2000 : kMostI8Cols;
  StoredWeight w({DType::i8, WeightLayout::packed, ScaleKind::per_row}, 16, cols);
  std::fill_n(w.weight.scales, 16, 0.5f);
  for (int64_t o = 0; o < 16; ++o) {
    for (int64_t c = 0; c < cols; ++c) {
      w.weight.data[element_offset(w.weight, o, c)] =
          std::byte{o % 2 == 0 ? uint8_t{255} : uint8_t{1}};
    }
  }
  Matrix x(2, cols), y(2, 16);
  for (int64_t c = 0; c < cols; ++c) {
    x.at(0, c) = 127;
    x.at(1, c) = -127;
  }
  Backend(GetParam(), Compute::bf16, needs(2, cols))
      ->linear(x.tensor(), w.weight, nullptr, y.tensor());
  const auto sum = static_cast<float>(127 * 127 * cols) * 0.5f;
  for (int64_t o = 0; o < 16; ++o) {
    EXPECT_EQ(y.at(0, o), o % 2 == 0 ? sum : -sum);
    EXPECT_EQ(y.at(1, o), o % 2 == 0 ? -sum : sum);
  }
}

TEST_P(Linear, ARowThatIsNotFiniteSpoilsOnlyItself) {
  Random random("Linear.ARowThatIsNotFiniteSpoilsOnlyItself");
  for (const Kind& kind : kKinds) {
    StoredWeight w = random_weight(kind, 16, 70, random);
    Matrix x = Matrix::random(3, 70, random), y(3, 16);
    x.at(1, 40) = std::nanf("");
    Backend(GetParam(), Compute::bf16, needs(3, 70))
        ->linear(x.tensor(), w.weight, nullptr, y.tensor());
    for (int64_t o = 0; o < 16; ++o) {
      EXPECT_TRUE(std::isfinite(y.at(0, o)) && std::isfinite(y.at(2, o)));
      EXPECT_TRUE(std::isnan(y.at(1, o)));
    }
  }
}

TEST_P(Linear, NoRowsIsNoWork) {
  Random random("Linear.NoRowsIsNoWork");
  StoredWeight w = random_weight(kKinds[0], 16, 8, random);
  Matrix x(0, 8), y(0, 16);
  Backend(GetParam(), Compute::bf16, needs(1, 8))
      ->linear(x.tensor(), w.weight, nullptr, y.tensor());
}

SLUICE_OVER_EVERY_ISA(Linear);
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, Linear, testing::ValuesIn(test::emulated_amx()),
                         test::target_name);

}  // namespace
}  // namespace sluice
