// The launches of a GPU's ops, and those that they leave out.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/step_rows.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::DeviceWeight;
using test::stream;

TEST(CudaLaunches, NothingToDoLaunchesNothing) {
  const int64_t launches = test::launches();
  DeviceMatrix empty(0, 8, 0);
  DeviceWeight weight({DType::f32, WeightLayout::rows, ScaleKind::none}, 1, 8);
  cuda::norm(empty.tensor(), weight.weight, {}, empty.tensor(), stream());
  cuda::add(empty.tensor(), empty.tensor(), stream());
  cuda::activate({Activation::silu}, empty.tensor(), empty.tensor(), empty.tensor(), stream());
  cuda::embed(weight.weight, nullptr, empty.tensor(), stream());
  EXPECT_EQ(test::launches(), launches);
}

TEST(CudaLaunches, AttentionIsLaunchedForPowersOfTwoOfPartitions) {
  EXPECT_EQ(cuda::launched_length(1, 100000), 512);
  EXPECT_EQ(cuda::launched_length(512, 100000), 512);
  EXPECT_EQ(cuda::launched_length(513, 100000), 1024);
  EXPECT_EQ(cuda::launched_length(2049, 100000), 4096);
  EXPECT_EQ(cuda::launched_length(1025, 1300), 1536);  // none is longer
  EXPECT_EQ(cuda::launched_length(1300, 1300), 1536);
}

// The last of the partitions' blocks combines them: the values' sum over all positions is that of
// one launch, and counters are zero behind it.
TEST(CudaLaunches, AttentionOfAnyLengthIsOneLaunch) {
  constexpr int64_t kLength = 1100, kDim = 8, kHeads = 3;
  Buffer<float> keys(kLength * kDim), values(kLength * kDim);
  for (int64_t i = 0; i < kLength * kDim; ++i) {
    keys.span()[static_cast<size_t>(i)] = 0;  // all positions count alike
    values.span()[static_cast<size_t>(i)] = static_cast<float>(i / kDim);
  }
  const KvCache cache{.keys = reinterpret_cast<std::byte*>(keys.data()),
                      .values = reinterpret_cast<std::byte*>(values.data()),
                      .block_stride = kLength * kDim * 4,
                      .dtype = DType::f32,
                      .blocks = 1,
                      .block_size = kLength,
                      .kv_heads = 1,
                      .key_dim = kDim,
                      .value_dim = kDim};
  test::Random random("CudaLaunches.AttentionOfAnyLengthIsOneLaunch");
  DeviceMatrix q(test::Matrix::random(2, kHeads * kDim, random), 0), out(2, kHeads * kDim, 0);
  Buffer<int32_t> table(std::vector<int32_t>{0}), sequences(std::vector<int32_t>{0, 0});
  Buffer<int32_t> positions(std::vector<int32_t>{1099, 600});
  Buffer<int32_t> arrived(std::vector<int32_t>(2 * kHeads, 0));
  Buffer<std::byte> workspace(cuda::decode_workspace_bytes(2, kHeads, kDim, 1536));
  for (int turn = 0; turn < 2; ++turn) {
    const int64_t before = test::launches();
    cuda::attention_decode(q.tensor(), cache, {table.data(), 1},
                           {sequences.data(), positions.data(), 1536, arrived.data()}, {},
                           workspace.data(), out.tensor(), stream());
    EXPECT_TRUE(test::launches() - before == 1 || test::launches() == 0);
    for (int64_t c = 0; c < kHeads * kDim; ++c) {
      EXPECT_NEAR(out.copy().at(0, c), 1099 / 2.0, 1e-2);
      EXPECT_NEAR(out.copy().at(1, c), 600 / 2.0, 1e-2);
    }
    for (const int32_t count : arrived.span()) EXPECT_EQ(count, 0);
  }
}

// Keys are stored with values in memory of their own; their bytes hold 0xa5 before.
TEST(CudaLaunches, RowsWithoutASlotAreNotStored) {
  Buffer<std::byte> keys(2 * 8 * 4), values(2 * 8 * 4);
  KvCache cache{.keys = keys.data(),
                .values = values.data(),
                .block_stride = 2 * 8 * 4,
                .dtype = DType::f32,
                .blocks = 1,
                .block_size = 2,
                .kv_heads = 1,
                .key_dim = 8,
                .value_dim = 8};
  test::Random random("CudaLaunches.RowsWithoutASlotAreNotStored");
  const test::Matrix x = test::Matrix::random(2, 8, random);
  DeviceMatrix k(x, 0), v(x, 0);
  Buffer<int64_t> slots(std::vector<int64_t>{-1, 1});
  cuda::store_kv(k.tensor(), v.tensor(), slots.data(), cache, stream());
  for (const auto* stored : {&keys, &values}) {
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ((*stored)[i], std::byte{0xa5});
    for (int64_t c = 0; c < 8; ++c) {
      float found = 0;
      std::memcpy(&found, stored->host() + 32 + 4 * c, 4);
      EXPECT_EQ(found, x.at(1, c));
    }
  }
}

// Two products do everything for few rows; for many there are lists, rounding, and the sum of what
// is gathered.
TEST(CudaLaunches, ExpertsTakeTheSameFewWhoeverIsChosen) {
  const WeightFormat format{DType::bf16, WeightLayout::packed, ScaleKind::none};
  constexpr int64_t kCount = 3, kUsed = 2, kHidden = 32, kWidth = 16;
  Buffer<uint16_t> up(kCount * 2 * kWidth * kHidden), down(kCount * kHidden * kWidth);
  for (auto* weights : {&up, &down})
    for (uint16_t& code : weights->span()) code = 0;
  auto matrix = [&](Buffer<uint16_t>& memory, int64_t rows, int64_t cols) {
    return ExpertMatrix{.first = {format, rows, cols, reinterpret_cast<std::byte*>(memory.data())},
                        .step = rows * cols * 2};
  };
  const ExpertWeights weights{.count = kCount,
                              .width = kWidth,
                              .up = matrix(up, 2 * kWidth, kHidden),
                              .down = matrix(down, kHidden, kWidth),
                              .second = kWidth};
  ASSERT_TRUE(cuda::experts_fit(weights, kUsed, Compute::bf16));
  for (const auto& [rows, expected] : {std::pair{1, 2}, {16, 2}, {17, 5}, {40, 5}}) {
    DeviceMatrix x(rows, kHidden, 0), y(rows, kHidden, 0);
    Buffer<int32_t> experts(static_cast<size_t>(rows * kUsed));
    Buffer<float> by(experts.span().size());
    for (size_t i = 0; i < by.span().size(); ++i) {
      experts.span()[i] = static_cast<int32_t>(i % 2 + i / 2 % 2);
      by.span()[i] = 1;
    }
    Buffer<std::byte> workspace(
        cuda::experts_workspace_bytes({rows, kUsed, kCount, kHidden, kWidth}));
    const int64_t before = test::launches();
    cuda::experts(x.tensor(), weights, kUsed, {experts.data(), by.data()}, {},
                  workspace.on_device(), y.tensor(), stream());
    const int64_t launched = test::launches() - before;
    EXPECT_TRUE(launched == expected || test::launches() == 0) << rows << " rows: " << launched;
    EXPECT_EQ(y.copy().at(rows - 1, 0), 0);
  }
}

}  // namespace
}  // namespace sluice
