// The emulator itself: what kernels compute on it, and that it finds what they may not do.
#include "tests/support/simt/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/simt.h"
#include "tests/support/simt/buffer.h"

namespace sluice {
namespace {

using cuda::Launch;
using simt::Fault;
using simt::Order;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Memory that the kernels and the test itself touch.
template <class T>
class CheckedBuffer {
 public:
  explicit CheckedBuffer(size_t count) : bytes_(count * sizeof(T)), count_(count) {}
  T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
  T& operator[](size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }
  std::vector<T> copy() const { return {data(), data() + count_}; }

 private:
  simt::GuardedBytes bytes_;
  size_t count_;
};

class Emulator : public testing::Test {
 protected:
  void TearDown() override { simt::set_order(Order::forward); }
};
using EmulatorDeathTest = Emulator;

Launch grid(uint32_t blocks, uint32_t threads, uint32_t shared_bytes = 0) {
  return {{blocks, 1, 1}, {threads, 1, 1}, shared_bytes};
}

TEST_F(Emulator, EveryThreadOfTheGridRunsOnce) {
  CheckedBuffer<int> runs(2 * 3 * 2 * 4 * 2 * 3);
  for (int& r : runs.span()) r = 0;
  simt::run({{2, 3, 2}, {4, 2, 3}, 0}, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&runs[block * 24 + thread], 1);
  });
  EXPECT_THAT(runs.copy(), testing::Each(1));
}

// A sum over the block as kernels take it: shuffles, shared memory, barriers.
void sum_block(const int* values, int count, int* sum) {
  int* partial = &cuda::shared_memory<int>();
  int mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    mine += values[i];
  }
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffff, mine, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / 32; ++w) mine += partial[w];
    *sum = mine;
  }
}

TEST_F(Emulator, BlocksSumInEveryOrder) {
  for (Order order : {Order::forward, Order::backward, Order::shuffled}) {
    simt::set_order(order, 7);
    CheckedBuffer<int> values(1000), sum(1);
    for (int i = 0; i < 1000; ++i) values[static_cast<size_t>(i)] = i;
    cuda::launch(sum_block, grid(2, 128, 4 * sizeof(int)), nullptr, values.data(), 1000,
                 sum.data());
    EXPECT_EQ(sum[0], 999 * 1000 / 2);
  }
}

TEST_F(Emulator, WarpOperationsDoWhatTheyAreDefinedTo) {
  CheckedBuffer<uint32_t> out(7 * 32);
  simt::run(grid(1, 32), [&] {
    const unsigned lane = threadIdx.x;
    out[lane] = __shfl_sync(0xffffffff, lane, 5, 8);         // lane 5 of each eight
    out[32 + lane] = __shfl_down_sync(0xffffffff, lane, 3);  // the last three keep theirs
    out[64 + lane] = __shfl_up_sync(0xffffffff, lane, 3);    // the first three keep theirs
    out[96 + lane] = __shfl_xor_sync(0xffffffff, lane, 9);   // 1 and 8 flipped
    out[128 + lane] = __ballot_sync(0xffffffff, lane % 3 == 0);
    if (lane < 16) out[160 + lane] = __any_sync(0xffff, lane == 9) != 0;
    if (lane < 16) out[192 + lane] = __all_sync(0xffff, lane != 9) != 0;
  });
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], lane / 8 * 8 + 5);
    EXPECT_EQ(out[32 + lane], lane < 29 ? lane + 3 : lane);
    EXPECT_EQ(out[64 + lane], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(out[96 + lane], lane ^ 9);
    EXPECT_EQ(out[128 + lane], 0x49249249u);
    if (lane < 16) {
      EXPECT_EQ(out[160 + lane], 1u);
      EXPECT_EQ(out[192 + lane], 0u);
    }
  }
}

// PTX ISA, figures of the fragments: A is 16 x 16, B 16 x 8; here A[i][k] = i + 16 k is taken from
// memory by ldmatrix, B is one column that picks a k, and so is each column of B^T.
TEST_F(Emulator, FragmentsLieAsThePtxIsaDrawsThem) {
  CheckedBuffer<uint16_t> a(16 * 16), b(16 * 16);  // b: [k][n], of which 8 columns are used
  CheckedBuffer<float> d(16 * 8);
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      a[static_cast<size_t>(i * 16 + k)] = float_to_bf16(static_cast<float>(i + 16 * k));
      b[static_cast<size_t>(i * 16 + k)] = float_to_bf16(i == 15 - k ? 1 : 0);
    }
  }
  simt::run(grid(1, 32), [&] {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t fa[4], fb[4];
    // Matrices 0 to 3: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
    cuda::ldmatrix_x4(fa, a.data() + lane % 16 * 16 + lane / 16 * 8);
    // Rows of B as they lie are columns of what mma wants: transposed.
    cuda::ldmatrix_x4_trans(fb, b.data() + lane % 16 * 16);
    float sum[4] = {1000, 1000, 1000, 1000};
    const uint32_t pair[2] = {fb[0], fb[1]};
    cuda::mma_bf16(sum, fa, pair);
    for (int i = 0; i < 4; ++i) {
      d[static_cast<size_t>((lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2)] = sum[i];
    }
  });
  for (int i = 0; i < 16; ++i) {
    for (int n = 0; n < 8; ++n) {  // column n picks k = 15 - n
      EXPECT_EQ(d[static_cast<size_t>(i * 8 + n)],
                1000 + bf16_to_float(float_to_bf16(static_cast<float>(i + 16 * (15 - n)))));
    }
  }
}

TEST_F(Emulator, SharedMemoryIsNaNInEveryBlock) {
  CheckedBuffer<uint32_t> seen(3);
  simt::run(grid(3, 1, 4), [&] {
    auto& word = cuda::shared_memory<uint32_t>();
    seen[blockIdx.x] = word;
    word = 1;
  });
  EXPECT_THAT(seen.copy(), testing::Each(0xffffffffu));
}

// A result that depends on which thread comes first differs between orders.
TEST_F(Emulator, AMissingBarrierShowsInAnotherOrder) {
  auto last = [](Order order) {
    simt::set_order(order);
    CheckedBuffer<unsigned> out(1);
    simt::run(grid(1, 64, 4), [&] {
      cuda::shared_memory<unsigned>() = threadIdx.x;
      out[0] = cuda::shared_memory<unsigned>();
    });
    return out[0];
  };
  EXPECT_EQ(last(Order::forward), 63u);
  EXPECT_EQ(last(Order::backward), 0u);
}

TEST_F(Emulator, FindsABarrierThatSomeDoNotReach) {
  auto kernel = [] {
    if (threadIdx.x < 40) __syncthreads();
  };
  EXPECT_THAT([&] { simt::run(grid(2, 64), kernel); },
              ThrowsMessage<Fault>(AllOf(HasSubstr("block (0, 0, 0)"), HasSubstr("__syncthreads"),
                                         HasSubstr("thread (40, 0, 0), which has left"))));
  EXPECT_NO_THROW(simt::run(grid(2, 32), kernel));  // and goes on afterwards
}

TEST_F(Emulator, FindsBarriersAtDifferentPlaces) {
  auto kernel = [] {
    if (threadIdx.x == 9) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_THAT([&] { simt::run(grid(1, 64), kernel); },
              ThrowsMessage<Fault>(AllOf(HasSubstr("thread (9, 0, 0): __syncthreads, while thread "
                                                   "(0, 0, 0) waits in __syncthreads"),
                                         HasSubstr("emulator_test.cc"))));
}

TEST_F(Emulator, FindsLanesThatAShuffleWaitsFor) {
  auto gone = [] {
    if (threadIdx.x != 5) __shfl_xor_sync(0xffffffff, 1, 1);
  };
  EXPECT_THAT([&] { simt::run(grid(1, 32), gone); },
              ThrowsMessage<Fault>(HasSubstr("for lane 5, which has left the kernel")));
  auto elsewhere = [] {
    if (threadIdx.x == 5) __syncthreads();
    __syncwarp();
  };
  EXPECT_THAT([&] { simt::run(grid(1, 32), elsewhere); },
              ThrowsMessage<Fault>(HasSubstr("for lane 5, which waits in __syncthreads")));
  auto small_block = [] { __syncwarp(); };
  EXPECT_THAT([&] { simt::run(grid(1, 48), small_block); },
              ThrowsMessage<Fault>(HasSubstr("for lane 16, which the block does not have")));
}

TEST_F(Emulator, FindsWrongMasks) {
  auto other_masks = [] { __shfl_sync(threadIdx.x == 3 ? 0xfffffffeu : 0xffffffffu, 1, 4); };
  EXPECT_THAT([&] { simt::run(grid(1, 32), other_masks); },
              ThrowsMessage<Fault>(HasSubstr("with mask 0xfffffffe, while lane")));
  auto outside = [] { __syncwarp(0xffff); };
  EXPECT_THAT([&] { simt::run(grid(1, 32), outside); },
              ThrowsMessage<Fault>(HasSubstr("thread (16, 0, 0): __syncwarp by a lane outside")));
  auto from_outside = [] {
    if (threadIdx.x < 16) __shfl_sync(0xffff, 1, 20);
  };
  EXPECT_THAT([&] { simt::run(grid(1, 32), from_outside); },
              ThrowsMessage<Fault>(HasSubstr("from lane 20, which is not in its mask")));
}

TEST_F(Emulator, FindsOperationsThatAreNotTheSame) {
  auto kernel = [] {
    if (threadIdx.x < 16) {
      __shfl_xor_sync(0xffffffff, 1, 1);
    } else {
      __ballot_sync(0xffffffff, 1);
    }
  };
  EXPECT_THAT([&] { simt::run(grid(1, 32), kernel); },
              ThrowsMessage<Fault>(HasSubstr("__ballot_sync with mask 0xffffffff, while lane 0")));
}

TEST_F(Emulator, FindsAccessesThatAreNotAligned) {
  CheckedBuffer<float> x(9);
  EXPECT_THAT([&] { simt::run(grid(1, 1), [&] { cuda::load_as<uint4>(x.data() + 1); }); },
              ThrowsMessage<Fault>(HasSubstr("an access of 16 bytes that is not aligned")));
}

TEST_F(EmulatorDeathTest, FindsReadsBehindABuffer) {
  EXPECT_DEATH(
      {
        CheckedBuffer<float> x(64);
        CheckedBuffer<float> y(1024);
        simt::run(grid(2, 32), [&] { y[threadIdx.x] = x[blockIdx.x * 48 + threadIdx.x]; });
      },
      "block \\(1, 0, 0\\), thread \\(16, 0, 0\\)");
}

TEST_F(EmulatorDeathTest, FindsWritesBehindABuffer) {
  EXPECT_DEATH(
      {
        CheckedBuffer<float> x(4);
        simt::run(grid(1, 32), [&] { x[threadIdx.x] = 0; });
      },
      "block \\(0, 0, 0\\), thread \\(4, 0, 0\\)");
}

// Between the end of a buffer and the page that is protected.
TEST_F(EmulatorDeathTest, FindsWritesJustBehindABuffer) {
  EXPECT_DEATH(
      {
        CheckedBuffer<std::byte> x(13);
        simt::run(grid(1, 14), [&] { x[threadIdx.x] = std::byte{1}; });
      },
      "nothing was written around|thread \\(13, 0, 0\\)");
}

TEST_F(EmulatorDeathTest, FindsWritesBehindSharedMemory) {
  EXPECT_DEATH(simt::run(grid(1, 32, 64), [] { (&cuda::shared_memory<float>())[threadIdx.x] = 0; }),
               "block \\(0, 0, 0\\), thread \\(16, 0, 0\\)");
}

TEST_F(EmulatorDeathTest, FindsAStackThatIsTooDeep) {
  struct Deep {
    static int sum(int n) {
      volatile int frame[256] = {n};
      return n == 0 ? 0 : frame[0] + sum(n - 1) + frame[1];
    }
  };
  EXPECT_DEATH(simt::run(grid(1, 2), [] { Deep::sum(1'000'000); }), "block \\(0, 0, 0\\)");
}

}  // namespace
}  // namespace sluice
