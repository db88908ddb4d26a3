// The largest logits of rows, so that the rows themselves need not leave the device: all from the
// k-th largest on.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/select.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 512;
struct Shared {
  Selection selection;
  int taken;
};

// One block a row.
__global__ void __launch_bounds__(kThreads)
    top_kernel(const float* logits, int64_t stride, int cols, uint32_t k, TopLogits out) {
  auto& shared = shared_memory<Shared>();
  const float* row = logits + blockIdx.x * stride;
  const int first = static_cast<int>(threadIdx.x);
  select(row, cols, k, shared.selection);
  const uint32_t least = shared.selection.least;
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
