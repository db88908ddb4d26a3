#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/rope.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kMostThreads = 256;

// One block a row; a thread takes pairs, neighbours in one head.
__global__ void __launch_bounds__(kMostThreads)
    rope_kernel(RopeTables a, float* x, int64_t x_stride, int heads, int head_dim) {
  for (int pair = static_cast<int>(threadIdx.x); pair < heads * a.half;
       pair += static_cast<int>(blockDim.x))
    rotate_pair(a, x + blockIdx.x * x_stride + pair / a.half * head_dim, pair % a.half);
}

}  // namespace

void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos, Tensor sin, Stream stream) {
  check_rope(x, head_dim, cos, sin);
  if (x.rows == 0 || x.cols == 0 || cos.cols == 0) return;
  const RopeTables tables = rope_tables(pairing, cos, sin);
  const int64_t heads = x.cols / head_dim;
  const uint32_t threads = block_threads(heads * tables.half, kMostThreads);
  launch(rope_kernel, {{static_cast<uint32_t>(x.rows)}, {threads}}, stream, tables, x.row<float>(0),
         x.stride, static_cast<int>(heads), static_cast<int>(head_dim));
}

}  // namespace sluice::cuda
