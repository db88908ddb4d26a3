// Codes as bf16, and sums of a block's warps: the common part of products of few rows by tensor
// cores.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr int kLaneBytes = 16;

// Four codes of E4M3 as two bf16 pairs. Their seven bits of magnitude, moved to the end of a bf16's
// exponent, are the value times 2^(7 - 127). NaN, which no loaded weight has, becomes 480.
__device__ inline void e4m3_to_bf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kRebias = 0x7b807b80;  // 2^120
  const uint32_t spread_low = __byte_perm(codes, 0, 0x1404);
  const uint32_t spread_high = __byte_perm(codes, 0, 0x3424);
  low = bf16x2_mul((spread_low & 0x7f007f00) >> 4 | (spread_low & 0x80008000), kRebias);
  high = bf16x2_mul((spread_high & 0x7f007f00) >> 4 | (spread_high & 0x80008000), kRebias);
}

// Four codes of i8, kept as code + 128, as two bf16 pairs: 128 and the lower seven bits, less 128
// or 256.
__device__ inline void i8_to_bf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  const uint32_t spread_low = __byte_perm(codes, 0, 0x4140);
  const uint32_t spread_high = __byte_perm(codes, 0, 0x4342);
  low = bf16x2_add((spread_low & 0x007f007f) | 0x43004300, (~spread_low & 0x00800080) | 0xc300c300);
  high =
      bf16x2_add((spread_high & 0x007f007f) | 0x43004300, (~spread_high & 0x00800080) | 0xc300c300);
}

template <DType kCodes>
__device__ inline void bytes_to_bf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  static_assert(kCodes == DType::f8_e4m3 || kCodes == DType::i8);
  kCodes == DType::i8 ? i8_to_bf16(codes, low, high) : e4m3_to_bf16(codes, low, high);
}

// Eight columns of a token, zeros where there is none.
__device__ inline Vec<uint32_t, 4> load_x(const uint16_t* x, bool there) {
  if (!there) return {};
  return load_as<Vec<uint32_t, 4>>(x);
}

// Leaves a warp's sums for add_partial: row r of token n at partial[warp][n][r].
template <int kTiles>
__device__ void leave_partial(const float (&total)[kTiles][4], float* partial) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = (warp * kTiles + tile) * static_cast<int>(kMmaTokens) + 2 * t + i % 2;
      partial[token * static_cast<int>(kMmaRows) + g + i / 2 * 8] = total[tile][i];
    }
  }
}

// Calls store(row of the block, token, sum) for all sums of the block, warp after warp.
template <int kTiles, class Store>
__device__ void add_partial(const float* partial, Store&& store) {
  constexpr int kRows = static_cast<int>(kMmaRows);
  constexpr int kSums = kTiles * static_cast<int>(kMmaTokens) * kRows;
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x); i < kSums; i += static_cast<int>(blockDim.x)) {
    float sum = partial[i];
    for (int w = 1; w < warps; ++w) sum += partial[w * kSums + i];
    store(i % kRows, i / kRows, sum);
  }
}

}  // namespace sluice::cuda
