// Rotation of the pairs of a head.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

struct RopeTables {
  const float* cos;
  const float* sin;
  int64_t cos_stride, sin_stride;
  int half;   // pairs of a head
  int step;   // from a pair to the next
  int apart;  // the two of a pair
};

inline RopeTables rope_tables(RopePairing pairing, const Tensor& cos, const Tensor& sin) {
  const bool halves = pairing == RopePairing::halves;
  const int half = static_cast<int>(cos.cols);
  return {cos.row<float>(0), sin.row<float>(0), cos.stride, sin.stride, half,
          halves ? 1 : 2,    halves ? half : 1};
}

// Pair i of a head of row blockIdx.x.
__device__ inline void rotate_pair(const RopeTables& a, float* head, int i) {
  float* first = head + i * a.step;
  float* second = first + a.apart;
  const float p = *first, q = *second;
  const float c = a.cos[blockIdx.x * a.cos_stride + i], s = a.sin[blockIdx.x * a.sin_stride + i];
  *first = p * c - q * s;
  *second = q * c + p * s;
}

}  // namespace sluice::cuda
