// Linear layers of many rows (prompts): rounded to bf16, multiplied by the vendor's library.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"

namespace sluice::cuda {

// bf16 weights, and those that bf16 holds: E4M3. Others go through linear_few_rows.
bool linear_many_fits(const Weight& w, Compute compute);

// Scratch for so many rows of inputs of at most `cols`.
uint64_t linear_many_workspace_bytes(int64_t rows, int64_t cols);

// y = x w^T (+ bias) as kernels.h has it. E4M3 weights are decoded to bf16 a tile of rows at a
// time: exactly, with scales of rows, which multiply the sums; with scales of blocks, which
// multiply the codes before, rounded to bf16.
void linear_many_rows(Tensor x, const Weight& w, const float* bias, Gemm& gemm,
                      std::span<std::byte> workspace, Tensor y, Stream stream);

}  // namespace sluice::cuda
