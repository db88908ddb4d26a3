// Logits as integers in the order of their values.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr uint32_t kNanCode = 0xffffffff;

// Larger numbers have larger codes, both zeros the same one, and NaN the largest.
__device__ inline uint32_t ordered(float x) {
  constexpr uint32_t kSign = 0x80000000;
  if (x != x) return kNanCode;
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits & kSign ? ~bits : bits | kSign;
}

}  // namespace sluice::cuda
