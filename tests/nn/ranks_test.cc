// Layers whose weights ranks divide: what the ranks compute, put together, is what one computes.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "src/nn/layers.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"
#include "tests/support/thread_group.h"

namespace sluice {
namespace {

using test::Random;

struct Layer : Linear {
  using Linear::Linear;
};

Tensor tensor(std::vector<float>& values, int64_t rows) {
  int64_t cols = std::ssize(values) / rows;
  return {reinterpret_cast<std::byte*>(values.data()), DType::f32, rows, cols, cols};
}

// One linear layer's weight [outputs, inputs] and bias, as a checkpoint has them.
struct Stored {
  int64_t outputs, inputs;
  std::vector<float> weight, bias;
  std::vector<test::StoredWeight> memory;  // of the layers that were loaded

  void load(Layer& layer) {
    layer.each_param([&](Param& p) {
      const Piece& piece = p.pieces.at(0);
      memory.push_back({{DType::f32, p.layout, ScaleKind::none}, p.rows, p.cols});
      const std::vector<float>& from = piece.vector ? bias : weight;
      EncodeArgs args;
      const int64_t skip = piece.vector ? piece.cut.col : piece.cut.row * inputs + piece.cut.col;
      args.source = reinterpret_cast<const std::byte*>(from.data() + skip);
      args.stored = DType::f32;
      args.source_stride = inputs * 4;
      args.rows = piece.cut.rows;
      args.to = memory.back().weight;
      if (piece.vector) args.to.cols = piece.cut.cols;
      encode_reference(args);
      p.value = memory.back().weight;
    });
  }
};

TEST(Ranks, OfDividedInputsAddUpAndAddTheBiasOnce) {
  Random random("Ranks.OfDividedInputsAddUpAndAddTheBiasOnce");
  for (int64_t units : {4, 7, 12}) {
    const int64_t unit = 3, rows = 2;
    Stored stored{16 * random.between(1, 3), units * unit, {}, {}, {}};
    for (int64_t i = 0; i < stored.outputs * stored.inputs; ++i)
      stored.weight.push_back(random.normal());
    for (int64_t i = 0; i < stored.outputs; ++i) stored.bias.push_back(random.normal());
    std::vector<float> x(static_cast<size_t>(rows * stored.inputs));
    for (float& v : x) v = random.normal();
    std::vector<float> whole;
    for (int size = 1; size <= 4; ++size) {
      test::Meeting meeting(size);
      std::vector<std::vector<float>> sums(static_cast<size_t>(size));
      std::vector<std::unique_ptr<Layer>> layers;
      const Dimension inputs{.size = stored.inputs, .unit = unit};
      for (int r = 0; r < size; ++r) {
        const std::vector<LinearPart> parts{{"l", stored.outputs, Shard::by_cols(inputs)}};
        layers.push_back(std::make_unique<Layer>("l", parts, stored.inputs, true, Rank{r, size}));
        stored.load(*layers.back());
      }
      std::vector<std::jthread> ranks;
      for (int r = 0; r < size; ++r) {
        ranks.emplace_back([&, r] {
          ThreadPool pool(1);
          auto kernels = make_cpu_kernels(Isa::reference, Compute::f32, pool, {});
          const test::ThreadGroup group({r, size}, meeting);
          std::vector<float>& y = sums[static_cast<size_t>(r)];
          y.assign(static_cast<size_t>(rows * stored.outputs), 0);
          const Share share = inputs.share(group.rank());
          layers[static_cast<size_t>(r)]->forward({*kernels, group},
                                                  tensor(x, rows).columns(share.begin, share.count),
                                                  tensor(y, rows));
        });
      }
      ranks.clear();
      const std::vector<float>& y = sums.front();
      for (const std::vector<float>& other : sums) ASSERT_EQ(other, y) << "on every rank the same";
      if (size == 1) whole = y;
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], whole[i], 1e-4) << size << " ranks";
    }
  }
}

TEST(Ranks, SharesBeginAtMultiples) {
  for (int64_t size : {104, 256, 1000, 11008}) {
    for (int64_t multiple : {1, 16, 32, 256}) {
      for (int ranks = 1; ranks <= 5; ++ranks) {
        const Dimension d{.size = size, .multiple_of = multiple};
        if (size < ranks * multiple) continue;
        int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
          const Share share = d.share({r, ranks});
          EXPECT_EQ(share.begin, next);
          EXPECT_EQ(share.begin % multiple, 0);
          EXPECT_GT(share.count, 0);
          next += share.count;
        }
        EXPECT_EQ(next, size);
      }
    }
  }
}

// A vocabulary of 331, divided as if it had 384: the last share is what is left.
TEST(Ranks, APaddedDimensionIsDividedAsIfItWereWhole) {
  const Dimension vocab{.size = 331, .padded_to = 384};
  int64_t begins[] = {0, 96, 192, 288};
  for (int r = 0; r < 4; ++r) {
    const Share share = vocab.share({r, 4});
    EXPECT_EQ(share.begin, begins[r]);
    EXPECT_EQ(share.count, r < 3 ? 96 : 43);
  }
}

}  // namespace
}  // namespace sluice
