// Loops over a matrix, element by element: a block takes kPiecesOfBlock vectors of one row.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr uint32_t kElementwiseThreads = 256;

// x: rows, which may be more than the other dimensions of a grid allow; y: parts of a row.
inline Launch elementwise_launch(int64_t rows, int64_t cols, int width) {
  const int64_t part = int64_t{kElementwiseThreads} * width;
  return {{static_cast<uint32_t>(rows), static_cast<uint32_t>((cols + part - 1) / part)},
          {kElementwiseThreads}};
}

// This thread's first column.
__device__ inline int64_t elementwise_column(int width) {
  return (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * width;
}

}  // namespace sluice::cuda
