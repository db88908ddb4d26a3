// The launches of a GPU's ops, and those that they leave out.
#include <gtest/gtest.h>

#include <vector>

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
  cuda::activate(Activation::silu, nullptr, empty.tensor(), empty.tensor(), empty.tensor(),
                 stream());
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

}  // namespace
}  // namespace sluice
