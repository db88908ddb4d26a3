// The largest logits of rows, so that the rows themselves need not leave the device: a radix
// selection, which finds the k-th largest eight bits at a time, and then takes all from there on.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr int kDigitBits = 8;
constexpr uint32_t kDigits = 1 << kDigitBits;

struct Shared {
  uint32_t counts[kDigits];  // of codes, by their next digit
  uint32_t least;            // the k-th largest code, as far as its digits are known
  uint32_t left;             // how many of those with the same digits are wanted
  int taken;
};

// The next digit of the k-th largest code, from the largest down.
__device__ inline void choose_digit(Shared& shared, uint32_t least, uint32_t left, int shift) {
  uint32_t digit = kDigits - 1;
  for (; shared.counts[digit] < left; --digit) left -= shared.counts[digit];
  shared.least = least | digit << shift;
  shared.left = left;
}

// One block a row.
__global__ void __launch_bounds__(kThreads)
    top_kernel(const float* logits, int64_t stride, int cols, uint32_t k, TopLogits out) {
  auto& shared = shared_memory<Shared>();
  const float* row = logits + blockIdx.x * stride;
  const int first = static_cast<int>(threadIdx.x);
  uint32_t least = 0, left = k;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (uint32_t i = threadIdx.x; i < kDigits; i += kThreads) shared.counts[i] = 0;
    __syncthreads();
    for (int c = first; c < cols; c += kThreads) {
      const uint32_t code = ordered(row[c]);
      const bool same = shift + kDigitBits == 32 || (code ^ least) >> (shift + kDigitBits) == 0;
      if (same) atomicAdd(&shared.counts[code >> shift & (kDigits - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) choose_digit(shared, least, left, shift);
    __syncthreads();
    least = shared.least;
    left = shared.left;
  }
  if (threadIdx.x == 0) shared.taken = 0;
  __syncthreads();
  for (int c = first; c < cols; c += kThreads) {
    if (ordered(row[c]) < least) continue;
    const int at = atomicAdd(&shared.taken, 1);
    if (at < out.most) out.tokens[blockIdx.x * out.most + at] = {row[c], c};
  }
  __syncthreads();
  if (threadIdx.x == 0) out.counts[blockIdx.x] = shared.taken;
}

}  // namespace

void top_logits(Tensor logits, int64_t k, const TopLogits& out, Stream stream) {
  check_top_logits(logits, k, out);
  if (logits.rows == 0) return;
  const auto wanted = static_cast<uint32_t>(k < logits.cols ? k : logits.cols);
  launch(top_kernel, {{static_cast<uint32_t>(logits.rows)}, {kThreads}, sizeof(Shared)}, stream,
         logits.row<float>(0), logits.stride, static_cast<int>(logits.cols), wanted, out);
}

}  // namespace sluice::cuda
