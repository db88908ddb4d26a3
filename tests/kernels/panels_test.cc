// Linear layers on the CPU, whose weights are packed in panels: how these are divided, padded and
// fetched.
#include <gtest/gtest.h>

#include <vector>

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

WorkspaceNeeds panel_needs(int64_t rows, int64_t cols) { return {rows, cols, 8}; }

class Panels : public test::EveryTarget {};

// However panels are divided among threads, and side by side, they are all multiplied, and put
// where they belong.
TEST_P(Panels, EveryNumberOfPanelsIsMultiplied) {
  Random random("Panels.EveryNumberOfPanelsIsMultiplied");
  constexpr int64_t kCols = 40;
  const Kind kinds[] = {{DType::bf16, ScaleGroup::none},
                        {DType::bf16, ScaleGroup::row},
                        {DType::bf16, ScaleGroup::block},
                        {DType::bf16, ScaleGroup::row, DType::i8}};
  for (int64_t panels = 1; panels <= 18; ++panels) {
    const Kind& kind = kinds[panels % 4];
    StoredWeight w = random_weight(kind, WeightLayout::packed, panels * kPanelRows, kCols, random);
    std::vector<float> bias(static_cast<size_t>(w.weight.rows));
    for (float& b : bias) b = random.normal();
    for (int64_t n : {1, 4, 7, 13, 20}) {  // four, two and one panels side by side, and a block
      Matrix x = Matrix::random(n, kCols, random), y(n, w.weight.rows);
      for (int threads = 1; threads <= 3; ++threads) {
        Backend(GetParam(), Compute::bf16, panel_needs(n, kCols), threads)
            ->linear(x.tensor(), w.weight, bias.data(), y.tensor());
        SCOPED_TRACE(fmt::format("{} panels, {} rows, {} threads", panels, n, threads));
        expect_product(rounded(x, w.weight.format, Compute::bf16), w.weight, bias.data(), y);
        if (HasFailure()) return;
        y = Matrix(n, w.weight.rows);
      }
    }
  }
}

TEST_P(Panels, PaddingRowsGiveZero) {
  Random random("Panels.PaddingRowsGiveZero");
  for (const Kind& kind : kKinds) {
    StoredWeight w = random_weight(kind, WeightLayout::packed, 19, 37, random);
    Matrix x = Matrix::random(3, 37, random), y(3, 32);
    Backend(GetParam(), Compute::bf16, panel_needs(3, 37))
        ->linear(x.tensor(), w.weight, nullptr, y.tensor());
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t o = 19; o < 32; ++o) EXPECT_EQ(y.at(r, o), 0.0f);
    }
  }
}

// A machine takes one of the two ways (kernels/cpu/features.h).
TEST_P(Panels, TheCacheThatWeightsAreFetchedIntoChangesNothing) {
  const cpu::Ops* ops = GetParam().table();
  if (ops == nullptr) GTEST_SKIP() << "the reference backend fetches nothing";
  Random random("Panels.TheCacheThatWeightsAreFetchedIntoChangesNothing");
  for (const Kind& kind : kKinds) {
    for (int64_t rows = 1; rows <= 16; ++rows) {
      const int64_t cols = random.between(1, 700), outputs = 16 * random.between(1, 13);
      StoredWeight w = random_weight(kind, WeightLayout::packed, outputs, cols, random);
      Matrix x = Matrix::random(rows, cols, random), l1(rows, outputs), l2(rows, outputs);
      Backend memory(GetParam(), Compute::bf16, panel_needs(rows, cols));
      const std::span<std::byte> bytes(memory.workspace.get(), memory.bytes);
      for (Matrix* y : {&l1, &l2}) {
        CpuKernels(*ops, Compute::bf16, memory.pool, bytes, y == &l1)
            .linear(x.tensor(), w.weight, nullptr, y->tensor());
      }
      EXPECT_TRUE(same_bits(l1, l2)) << rows << " rows";
    }
  }
}

SLUICE_OVER_EVERY_TARGET_AND_TILES(Panels);

}  // namespace
}  // namespace sluice
