#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kMostThreads = 256;

struct RopeArgs {
  float* x;
  const float* cos;
  const float* sin;
  int64_t x_stride, cos_stride, sin_stride;
  int heads, head_dim, half;
  int step;   // from a pair to the next
  int apart;  // the two of a pair
};

// One block a row; a thread takes pairs, neighbours in one head.
__global__ void __launch_bounds__(kMostThreads) rope_kernel(RopeArgs a) {
  float* x = a.x + blockIdx.x * a.x_stride;
  const float* cos = a.cos + blockIdx.x * a.cos_stride;
  const float* sin = a.sin + blockIdx.x * a.sin_stride;
  for (int pair = static_cast<int>(threadIdx.x); pair < a.heads * a.half;
       pair += static_cast<int>(blockDim.x)) {
    const int i = pair % a.half;
    float* first = x + pair / a.half * a.head_dim + i * a.step;
    float* second = first + a.apart;
    const float p = *first, q = *second, c = cos[i], s = sin[i];
    *first = p * c - q * s;
    *second = q * c + p * s;
  }
}

}  // namespace

void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos, Tensor sin, Stream stream) {
  check_rope(x, head_dim, cos, sin);
  if (x.rows == 0 || x.cols == 0 || cos.cols == 0) return;
  const bool halves = pairing == RopePairing::halves;
  const RopeArgs args{x.row<float>(0),
                      cos.row<float>(0),
                      sin.row<float>(0),
                      x.stride,
                      cos.stride,
                      sin.stride,
                      static_cast<int>(x.cols / head_dim),
                      static_cast<int>(head_dim),
                      static_cast<int>(cos.cols),
                      halves ? 1 : 2,
                      halves ? static_cast<int>(cos.cols) : 1};
  const uint32_t threads = block_threads(int64_t{args.heads} * args.half, kMostThreads);
  launch(rope_kernel, {{static_cast<uint32_t>(x.rows)}, {threads}}, stream, args);
}

}  // namespace sluice::cuda
