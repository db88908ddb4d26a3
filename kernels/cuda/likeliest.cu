// Arg-max of rows of logits, so that the rows themselves need not leave the device.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 1024;

__device__ inline float from_ordered(uint32_t code) {
  constexpr uint32_t kSign = 0x80000000;
  return std::bit_cast<float>(code == kNanCode ? code : code & kSign ? code ^ kSign : ~code);
}

// One block a row. It compares the logits' codes, then ids, lower ones first.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    likeliest_kernel(const float* logits, int64_t stride, int cols, TokenLogit* out) {
  wait_for_earlier();
  constexpr int kAhead = 8;  // vectors that a thread reads before it uses the first
  constexpr int kStep = static_cast<int>(kThreads) * kWidth;
  const float* row = logits + blockIdx.x * stride;
  unsigned long long best = 0;
  for (int first = static_cast<int>(threadIdx.x) * kWidth; first < cols; first += kAhead * kStep) {
    Vec<float, kWidth> values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kStep < cols)
        values[i] = load_as<Vec<float, kWidth>>(row + first + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      for (int j = 0; j < kWidth && first + i * kStep < cols; ++j) {
        const uint32_t code = ordered(values[i].at[j]);
        const uint32_t id = code == kNanCode ? 0 : static_cast<uint32_t>(first + i * kStep + j);
        best = Larger{}(best, static_cast<unsigned long long>(code) << 32 | ~id);
      }
    }
  }
  best = block_reduce(best, Larger{}, &shared_memory<unsigned long long>());
  if (threadIdx.x != 0) return;
  out[blockIdx.x] = {from_ordered(static_cast<uint32_t>(best >> 32)),
                     static_cast<int32_t>(~static_cast<uint32_t>(best))};
}

}  // namespace

void likeliest(Tensor logits, TokenLogit* out, Stream stream) {
  check_likeliest(logits);
  if (logits.rows == 0) return;
  const Launch at{{static_cast<uint32_t>(logits.rows)}, {kThreads}, kThreads / 32 * 8};
  with_width(
      [&](auto width) {
        launch_early(likeliest_kernel<width()>, at, stream, logits.row<float>(0), logits.stride,
                     static_cast<int>(logits.cols), out);
      },
      logits);
}

}  // namespace sluice::cuda
