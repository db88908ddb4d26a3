// The k-th largest of a row by radix selection: eight bits at a time, from the upper ones on.
#pragma once

#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr int kDigitBits = 8;
constexpr uint32_t kDigits = 1 << kDigitBits;

struct Selection {
  uint32_t counts[kDigits];  // of codes, by their next digit
  uint32_t least;            // the k-th largest code, as far as its digits are known
  uint32_t left;             // how many of those with the same digits are wanted
};

// The next digit of the k-th largest code, from the largest down.
__device__ inline void choose_digit(Selection& shared, uint32_t least, uint32_t left, int shift) {
  uint32_t digit = kDigits - 1;
  for (; shared.counts[digit] < left; --digit) left -= shared.counts[digit];
  shared.least = least | digit << shift;
  shared.left = left;
}

// Leaves in `shared` the code (ordered.cuh) of the k-th largest of a row, k from 1 to `cols`, and
// how many of those equal to it are among the k largest. All threads of the block call it, in x.
__device__ inline void select(const float* row, int cols, uint32_t k, Selection& shared) {
  uint32_t least = 0, left = k;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (uint32_t i = threadIdx.x; i < kDigits; i += blockDim.x) shared.counts[i] = 0;
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x)) {
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
}

}  // namespace sluice::cuda
