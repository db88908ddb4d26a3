// Weights as fragments of tensor cores, 16 bytes a lane, and what else products of few rows share.
//
// The weight's 16 rows are the rows of fragment A, tokens are the columns of B, and sums are over
// k. The numbers of k are free, because a sum does not depend on the order of its terms: they are
// chosen so that each lane reads 16 neighbouring bytes: lane 4g + t takes those of rows g and g + 8
// at 16 t.
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

// A lane's part of kMmaCols columns: kVectors vectors of rows g and g + 8.
template <DType kCodes>
struct Slice {
  static constexpr int kElements = kCodes == DType::bf16 ? 8 : 16;  // of a vector
  static constexpr int kVectors = static_cast<int>(kMmaCols) / (4 * kElements);
  Vec<uint32_t, 4> at[kVectors][2];
};

// The rows of a weight that a lane reads: for rows g and g + 8 of its fragments.
struct LaneRows {
  int at[2];
  bool there[2];
};

// The columns from `col` of a lane's rows, zeros outside of the weight.
template <DType kCodes>
__device__ Slice<kCodes> load_slice(const std::byte* codes, int cols, const LaneRows& rows,
                                    int col) {
  using S = Slice<kCodes>;
  S slice;
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    const int c = col + v * 4 * S::kElements;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      slice.at[v][half] = {};
      if (rows.there[half] && c < cols) {
        const int64_t element = int64_t{rows.at[half]} * cols + c;
        slice.at[v][half] =
            load_streaming<Vec<uint32_t, 4>>(codes + element * (kLaneBytes / S::kElements));
      }
    }
  }
  return slice;
}

// Eight columns of a token, zeros where there is none.
__device__ inline Vec<uint32_t, 4> load_x(const uint16_t* x, bool there) {
  if (!there) return {};
  return load_as<Vec<uint32_t, 4>>(x);
}

// d += one vector of the weight times x, which points to the same columns of the lane's token.
template <DType kCodes>
__device__ void multiply(const Vec<uint32_t, 4> (&w)[2], const uint16_t* x, bool there,
                         float (&d)[4]) {
  using Words = Vec<uint32_t, 4>;
  if constexpr (kCodes == DType::bf16) {
    const Words b = load_x(x, there);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t fa[4] = {w[0].at[i], w[1].at[i], w[0].at[i + 1], w[1].at[i + 1]};
      const uint32_t fb[2] = {b.at[i], b.at[i + 1]};
      mma_bf16(d, fa, fb);
    }
  } else {
    const Words b[2] = {load_x(x, there), load_x(x + 8, there)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t fa[4];
      bytes_to_bf16<kCodes>(w[0].at[i], fa[0], fa[2]);
      bytes_to_bf16<kCodes>(w[1].at[i], fa[1], fa[3]);
      const uint32_t fb[2] = {b[i / 2].at[i % 2 * 2], b[i / 2].at[i % 2 * 2 + 1]};
      mma_bf16(d, fa, fb);
    }
  }
}

// A row of x, rounded to bf16, to shared memory, by the whole block; zeros behind its columns.
__device__ inline void stage_row(const float* from, int cols, uint16_t* to, int to_cols) {
  constexpr int kColumns = 4;
#pragma unroll 4
  for (int c = static_cast<int>(threadIdx.x) * kColumns; c < to_cols;
       c += static_cast<int>(blockDim.x) * kColumns) {
    Vec<float, kColumns> x = {};
    if (c < cols) x = load_as<Vec<float, kColumns>>(from + c);
    store_as(to + c, Vec<uint32_t, 2>{bf16x2_from_floats(x.at[0], x.at[1]),
                                      bf16x2_from_floats(x.at[2], x.at[3])});
  }
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
