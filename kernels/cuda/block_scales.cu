#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gemv.h"

namespace sluice::cuda {
namespace {

// A thread takes the scale of one block from the first of its panels.
__global__ void __launch_bounds__(kElementwiseThreads)
    block_scales_kernel(const float* panels, int64_t blocks, float* to, int64_t to_cols) {
  const int64_t block = elementwise_column(1);
  if (block >= to_cols) return;
  constexpr int64_t kPanels = kScaleBlock / kPanelRows;
  const bool there = block < blocks;
  to[blockIdx.x * to_cols + block] = there ? panels[blockIdx.x * kPanels * blocks + block] : 0;
}

}  // namespace

void block_scales(const Weight& w, float* to, Stream stream) {
  check(w.format.whole_blocks, "scales of whole blocks");
  const int64_t blocks = ceil_div(w.cols, kScaleBlock);
  const int64_t to_cols = ceil_div(blocks, kBlockScaleCols) * kBlockScaleCols;
  const int64_t rows = ceil_div(w.rows, kScaleBlock);
  launch(block_scales_kernel, elementwise_launch(rows, to_cols, 1), stream, w.scales, blocks, to,
         to_cols);
}

}  // namespace sluice::cuda
