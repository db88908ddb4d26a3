// Linear layers of many rows (prompts): rounded to bf16, or to the weight's codes where its format
// says so, and multiplied by the vendor's library.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"

namespace sluice::cuda {

// bf16 weights, those that bf16 holds (E4M3), weights in groups, and i8. Others go through
// linear_few_rows.
bool linear_many_fits(const Weight& w, Compute compute);

// Scratch for so many rows of inputs of at most `cols`.
uint64_t linear_many_workspace_bytes(int64_t rows, int64_t cols);

// y = x w^T (+ bias) as kernels.h has it. Weights are put into plain rows of bf16 a tile of rows at
// a time, which stays in the GPU's L2 cache: E4M3 exactly, with scales of rows, which multiply the
// sums; with scales of blocks or groups, which multiply the codes before, rounded to bf16. If the
// input is E4M3, too, codes are multiplied, if the GPU can (with scales of blocks in whole fours of
// rows, and the rest as few rows); else as bf16, which for scales of rows is as exact. i8 gives the
// bits of linear_few_rows. Returns false if the library has no way on this GPU, or refuses its own:
// then y is undefined, and linear_few_rows computes it.
[[nodiscard]] bool linear_many_rows(Tensor x, const Weight& w, const float* bias, Gemm& gemm,
                                    std::span<std::byte> workspace, Tensor y, Stream stream);

// Its parts.
inline constexpr uint64_t kManyTileBytes = uint64_t{16} << 20;  // of the weight, decoded; about
uint64_t linear_many_i8_bytes(int64_t rows, int64_t cols);
bool linear_many_rows_i8(Tensor x, const Weight& w, const float* bias, Gemm& gemm,
                         std::span<std::byte> workspace, Tensor y, Stream stream);

}  // namespace sluice::cuda
