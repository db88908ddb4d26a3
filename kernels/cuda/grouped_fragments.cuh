// Weights of grouped codes as fragments of tensor cores: the weight's 16 rows are the rows of
// fragment A, tokens are the columns of B, and the numbers of k are free (fragments.cuh).
//
// Fragments have code - zero, or a float of four bits, which bf16 holds exactly; a group's sum is
// then multiplied by its scale. A warp takes 128 columns at a time. Lane 4g + t has 32 of them in
// rows g and g + 8, as four pieces of 8. Where the 128 have one scale, 4-bit codes are read 16
// bytes at a time: lane t has run t (quant/groups.h). Elsewhere piece j is the part t of run j, so
// that each pair of mma stays within a group.
#pragma once

#include <bit>

#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/simt.h"
#include "quant/groups.h"

namespace sluice::cuda {

constexpr int kGroupedCols = static_cast<int>(kMmaCols);
constexpr int kPieces = kGroupedCols / kRunCols;  // of a lane
constexpr int kPieceCols = 8;
constexpr uint32_t kMagic =
    0x43004300;  // a bf16 pair of 128, in whose last bits a code of 4 bits stands
constexpr uint32_t kMinusMagic = 0xc300c300;  // its negative

// The scale that these bits are.
__device__ inline float grouped_scale(DType type, uint32_t bits) {
  if (type == DType::f32) return std::bit_cast<float>(bits);
  if (type == DType::f8_e8m0) return e8m0_to_float(static_cast<uint8_t>(bits));
  const auto half = static_cast<uint16_t>(bits);
  return type == DType::f16 ? f16_to_float(half) : bf16_to_float(half);
}

struct GroupedPlanes {
  const uint32_t* codes;
  const std::byte* scales;
  const uint8_t* zeros;  // or null
  DType scale_type;
  int zero_base;
  int row_words, groups, group_cols;
  int group_shift;  // group_cols as a power of two; -1: it is none
  int rows, cols;

  // A scale as it is stored, so that nothing waits for it before it is used.
  __device__ uint32_t scale_bits(int64_t at) const {
    if (scale_type == DType::f32) return reinterpret_cast<const uint32_t*>(scales)[at];
    if (scale_type == DType::f8_e8m0) return static_cast<uint8_t>(scales[at]);
    return reinterpret_cast<const uint16_t*>(scales)[at];
  }
};
GroupedPlanes grouped_planes(const Weight& w);  // of what gemv_grouped_fits()

// A pair of floats of four bits: their three bits of magnitude, moved to the end of a bf16's
// exponent, are the value times 2^-126.
__device__ inline uint32_t e2m1_to_bf16(uint32_t pair) {
  constexpr uint32_t kRebias = 0x7e807e80;  // 2^126
  return bf16x2_mul((pair & 0x00070007) << 6 | (pair & 0x00080008) << 12, kRebias);
}

// The codes of columns 2i and 2i + 1 of a run in the halves of a word; of 8 bits the lower four, or
// with `upper` the others.
template <int kBits>
__device__ uint32_t code_pair(const uint32_t* run, int i, bool upper) {
  if constexpr (kBits == 8) return run[i / 2] >> (i % 2 * 8 + (upper ? 4 : 0)) & 0x000f000f;
  if constexpr (kBits == 4) return run[i / 4] >> (i % 4 * 4) & 0x000f000f;
  uint32_t pair = run[i / 8] >> (i % 8 * 2) & 0x00030003;
  if constexpr (kBits == 3) pair |= (run[2] >> i & 0x00010001) << 2;
  return pair;
}

// A lane's part of one of its two rows, of 128 columns.
template <int kBits, bool kOneGroup>
struct Part {
  static constexpr int kGroups = kOneGroup ? 1 : kPieces;
  static constexpr int kWords =
      kBits == 8 ? 2 : 1;  // of a piece: pairs of codes that stand in 4-bit fields
  uint32_t words[kPieces][kWords];
  uint32_t scales[kGroups];
  uint8_t zeros[kGroups];
};

// Four pairs of a piece as one word of 4-bit fields, as 4-bit codes are stored.
template <int kBits>
__device__ uint32_t gather_pairs(const uint32_t* run, int t, bool upper) {
  if constexpr (kBits == 4) return run[t];
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= code_pair<kBits>(run, t * 4 + i, upper) << (4 * i);
  return word;
}

template <int kBits, bool kOneGroup>
__device__ void load_part(const GroupedPlanes& a, int row, int col, int t,
                          Part<kBits, kOneGroup>& to) {
  to = {};
  if (row >= a.rows || col >= a.cols) return;
  auto group_at = [&](int c) { return a.group_shift >= 0 ? c >> a.group_shift : c / a.group_cols; };
  const uint32_t* words = a.codes + int64_t{row} * a.row_words;
  const int64_t group = int64_t{row} * a.groups;
  if constexpr (kOneGroup && kBits == 4) {
    const int mine = col + t * kRunCols;
    if (mine < a.cols) {
      const auto run = load_streaming<Vec<uint32_t, 4>>(words + mine / kRunCols * kBits);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) to.words[j][0] = run.at[j];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int begin = col + j * kRunCols;
      if (begin >= a.cols) break;
      const uint32_t* run = words + begin / kRunCols * kBits;
#pragma unroll
      for (int i = 0; i < Part<kBits, kOneGroup>::kWords; ++i)
        to.words[j][i] = gather_pairs<kBits>(run, t, i == 1);
    }
  }
#pragma unroll
  for (int j = 0; j < Part<kBits, kOneGroup>::kGroups; ++j) {
    const int begin = col + j * kRunCols;
    if (begin >= a.cols) break;
    to.scales[j] = a.scale_bits(group + group_at(begin));
    if (a.zeros != nullptr) to.zeros[j] = a.zeros[group + group_at(begin)];
  }
}

// The four bits of a zero that belong to a word of codes (in 8 bits, the fifth of the upper ones
// with them), as a pair of
// -(128 + those bits).
template <int kBits>
__device__ uint32_t minus_zero(int zero, bool upper) {
  const auto bits = static_cast<uint32_t>(kBits != 8 ? zero : upper ? zero >> 4 : zero & 15);
  return kMinusMagic | bits * 0x00010001;
}

// Rows of x, rounded to bf16, [tokens][cols], with zeros behind those of the weight.
struct GroupedInput {
  const uint16_t* data;
  int cols, tokens;
};

// total += the products of 128 columns from `col` on. kE2M1: codes are floats of four bits.
template <int kBits, bool kOneGroup, bool kE2M1, int kTiles>
__device__ void multiply_parts(const GroupedPlanes& a, const GroupedInput& in,
                               const Part<kBits, kOneGroup> (&parts)[2], int col,
                               float (&total)[kTiles][4]) {
  using P = Part<kBits, kOneGroup>;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  float sum[kTiles][P::kWords][4] = {};  // of one group
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int group = kOneGroup ? 0 : j;
    const int from = kOneGroup && kBits == 4 ? col + t * kRunCols + j * kPieceCols
                                             : col + j * kRunCols + t * kPieceCols;
    Vec<uint32_t, 4> x[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * static_cast<int>(kMmaTokens) + g;
      x[tile] = {};
      if (token < in.tokens)
        x[tile] = load_as<Vec<uint32_t, 4>>(in.data + int64_t{token} * in.cols + from);
    }
#pragma unroll
    for (int word = 0; word < P::kWords; ++word) {
      uint32_t zeros[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        zeros[half] = minus_zero<kBits>(parts[half].zeros[group] + a.zero_base, word == 1);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        uint32_t fa[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const uint32_t pair = parts[k % 2].words[j][word] >> (4 * (i + k / 2)) & 0x000f000f;
          fa[k] = kE2M1 ? e2m1_to_bf16(pair) : bf16x2_add(pair | kMagic, zeros[k % 2]);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint32_t fb[2] = {x[tile].at[i], x[tile].at[i + 1]};
          mma_bf16(sum[tile][word], fa, fb);
        }
      }
    }
    if (kOneGroup && j + 1 < kPieces) continue;
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[half] = grouped_scale(a.scale_type, parts[half].scales[group]);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float all = sum[tile][0][i];
        sum[tile][0][i] = 0;
        if constexpr (P::kWords == 2) {
          all += 16 * sum[tile][1][i];
          sum[tile][1][i] = 0;
        }
        total[tile][i] += all * scales[i / 2];
      }
    }
  }
}

}  // namespace sluice::cuda
