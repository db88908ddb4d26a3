// Sums and maxima over a warp or a block.
#pragma once

#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr uint32_t kAllLanes = 0xffffffff;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Reduces each `kLanes` consecutive lanes (a power of two); each lane gets the result.
template <int kLanes = 32, class T, class Op>
__device__ T warp_reduce(T x, Op op) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Reduces the block's threads (whole warps, in x); each thread gets the result. `partial` is shared
// memory for one T of each warp; it may be used again after a barrier.
template <class T, class Op>
__device__ T block_reduce(T x, Op op, T* partial) {
  const unsigned warps = blockDim.x / 32;
  x = warp_reduce(x, op);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = partial[0];
  for (unsigned w = 1; w < warps; ++w) x = op(x, partial[w]);
  return x;
}

}  // namespace sluice::cuda
