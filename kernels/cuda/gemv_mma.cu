// A few rows of x times a weight, by tensor cores: the weight, which is all that counts, is read
// once whatever the number of tokens, and multiplying it costs the same for 1 and 8
// (fragments.cuh).
#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kStagedTokens = 2;             // whose x blocks round themselves,
constexpr int64_t kStagedBytes = 32 * 1024;  // where they have room for it

struct GemvArgs {
  const std::byte* weight;
  const float* scales;
  const float* bias;
  const uint16_t* x;
  const float* unrounded;  // kStage: in the place of x
  int64_t x_stride;
  InputScales x_scales;
  float* y;
  int64_t y_stride;
  int rows, cols, x_cols, tokens;
  Gating gating;
  int width, second;  // as of GatedRows
};

// The rows of the weight that a block has: neighbours, or eight of a gate and those of its factor.
struct BlockRows {
  int first[2];
  int end;  // of the first eight, where there is a gate; else of all
};
__device__ inline BlockRows block_rows(const GemvArgs& a) {
  const int block = static_cast<int>(blockIdx.x), rows = static_cast<int>(kMmaRows);
  if (a.width == 0) return {{block * rows, block * rows + 8}, a.rows};
  return {{block * 8, a.second + block * 8}, a.width};
}

// x, rounded to bf16, to shared memory: [tokens][x_cols], zeros behind its columns.
__device__ inline void stage_x(const GemvArgs& a, uint16_t* to) {
  for (int token = 0; token < a.tokens; ++token)
    stage_row(a.unrounded + token * a.x_stride, a.cols, to + token * a.x_cols, a.x_cols);
}

// A sum of the block, scaled.
__device__ inline float finished(const GemvArgs& a, int row, int token, float sum,
                                 bool row_scales) {
  if (a.x_scales.at != nullptr && a.x_scales.block_step == 0)
    sum *= a.x_scales.at[token * a.x_scales.row_step];
  if (row_scales) sum *= a.scales[row];
  return a.bias == nullptr ? sum : sum + a.bias[row];
}

// Scale of a token's codes in one block of columns; 1 where x has no scales, or one a row.
__device__ inline float x_scale(const GemvArgs& a, int token, int block) {
  if (a.x_scales.block_step == 0 || token >= a.tokens) return 1;
  return a.x_scales.at[token * a.x_scales.row_step + block * a.x_scales.block_step];
}

// total += the products of kMmaCols columns; `mine`: the lane's first.
template <DType kCodes, ScaleKind kScales, int kTiles>
__device__ void multiply_slice(const GemvArgs& a, const Slice<kCodes>& slice, const uint16_t* x,
                               int mine, float (&total)[kTiles][4]) {
  using S = Slice<kCodes>;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int block = mine / static_cast<int>(kMmaCols);
  float sum[kTiles][4] = {};  // of these columns
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * static_cast<int>(kMmaTokens) + g;
      multiply<kCodes>(slice.at[v], x + int64_t{token} * a.x_cols + mine + v * 4 * S::kElements,
                       token < a.tokens, kScales == ScaleKind::per_block ? sum[tile] : total[tile]);
    }
  }
  if constexpr (kScales == ScaleKind::per_block) {  // a panel has one for kScaleBlock columns
    const int blocks = (a.cols + static_cast<int>(kMmaCols) - 1) / static_cast<int>(kMmaCols);
    const BlockRows rows = block_rows(a);
    float scale[2];
    for (int half = 0; half < 2; ++half)
      scale[half] =
          a.scales[int64_t{rows.first[half] / static_cast<int>(kPanelRows)} * blocks + block];
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int i = 0; i < 4; ++i) {
        const int token = tile * static_cast<int>(kMmaTokens) + 2 * t + i % 2;
        total[tile][i] += sum[tile][i] * x_scale(a, token, block) * scale[i / 2];
      }
    }
  }
}

// Stores what is made of the block's gates and factors; sums as add_partial has them.
template <int kTiles>
__device__ void store_gated(const GemvArgs& a, const BlockRows& rows, const float* partial,
                            bool row_scales) {
  constexpr int kRows = static_cast<int>(kMmaRows);
  constexpr int kSums = kTiles * static_cast<int>(kMmaTokens) * kRows;
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x); i < kSums / 2; i += static_cast<int>(blockDim.x)) {
    const int r = i % 8, token = i / 8, column = rows.first[0] + r;
    if (column >= rows.end || token >= a.tokens) continue;
    float sums[2];
    for (int half = 0; half < 2; ++half) {
      const float* from = partial + token * kRows + half * 8 + r;
      float sum = from[0];
      for (int w = 1; w < warps; ++w) sum += from[w * kSums];
      sums[half] = finished(a, rows.first[half] + r, token, sum, row_scales);
    }
    a.y[token * a.y_stride + column] = gated_value(a.gating, sums[0], sums[1], true);
  }
}

// A block takes kMmaRows rows; its warps take kMmaCols columns in turn. kStage: it rounds x itself.
// The next columns are on their way while some are multiplied, if that leaves registers for them.
template <DType kCodes, ScaleKind kScales, int kTiles, bool kStage>
__global__ void __launch_bounds__(kMostWarps * 32, 2) gemv_kernel(GemvArgs a) {
  constexpr bool kAhead = kCodes != DType::bf16 || kTiles == 1;
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const BlockRows of_block = block_rows(a);
  const int upper = of_block.first[0] + g, lower = of_block.first[1] + g;
  const bool gated = a.width > 0, there = upper < of_block.end;
  const LaneRows rows{{upper, lower}, {there, gated ? there : lower < of_block.end}};
  const int step = warps * static_cast<int>(kMmaCols);
  int mine = warp * static_cast<int>(kMmaCols) + t * Slice<kCodes>::kElements;
  Slice<kCodes> slice;
  if constexpr (kAhead) slice = load_slice<kCodes>(a.weight, a.cols, rows, mine);
  wait_for_earlier();
  const uint16_t* x = a.x;
  if constexpr (kStage) {
    auto* staged = &shared_memory<uint16_t>();
    stage_x(a, staged);
    __syncthreads();
    x = staged;
  }
  float total[kTiles][4] = {};
  const int end = a.cols + t * Slice<kCodes>::kElements;
  while (mine < end) {
    Slice<kCodes> next;
    if constexpr (!kAhead) slice = load_slice<kCodes>(a.weight, a.cols, rows, mine);
    if constexpr (kAhead) next = load_slice<kCodes>(a.weight, a.cols, rows, mine + step);
    multiply_slice<kCodes, kScales, kTiles>(a, slice, x, mine, total);
    if constexpr (kAhead) slice = next;
    mine += step;
  }
  if constexpr (kStage) __syncthreads();  // its memory is used again
  float* partial = &shared_memory<float>();
  leave_partial<kTiles>(total, partial);
  __syncthreads();
  constexpr bool kByRows = kScales == ScaleKind::per_row;
  if (gated) return store_gated<kTiles>(a, of_block, partial, kByRows);
  add_partial<kTiles>(partial, [&](int r, int token, float sum) {
    const int row = of_block.first[0] + r;
    if (row < a.rows && token < a.tokens)
      a.y[token * a.y_stride + row] = finished(a, row, token, sum, kByRows);
  });
}

template <DType kCodes, ScaleKind kScales>
void launch_gemv(const GemvArgs& args, Stream stream) {
  const uint32_t warps = block_threads(ceil_div(args.cols, kMmaCols) * 32, kMostWarps * 32) / 32;
  const int tiles = args.tokens > kMmaTokens ? 2 : 1;
  const auto staged =
      args.x == nullptr ? static_cast<uint32_t>(args.tokens * args.x_cols) * 2 : uint32_t{0};
  const uint32_t sums = warps * static_cast<uint32_t>(tiles * kMmaTokens * kMmaRows * 4);
  const int64_t blocks =
      args.width > 0 ? ceil_div(args.width, kMmaRows / 2) : ceil_div(args.rows, kMmaRows);
  const Launch at{{static_cast<uint32_t>(blocks)}, {warps * 32}, std::max(sums, staged)};
  if (staged > 0) {
    launch_early(gemv_kernel<kCodes, kScales, 1, true>, at, stream, args);
  } else if (tiles == 1) {
    launch_early(gemv_kernel<kCodes, kScales, 1, false>, at, stream, args);
  } else {
    launch_early(gemv_kernel<kCodes, kScales, 2, false>, at, stream, args);
  }
}

// Launches the kernel for the weight's codes.
void launch_any(GemvArgs args, const Weight& w, const float* bias, const GatedRows& gated, Tensor y,
                Stream stream) {
  args.gating = gated.gating;
  args.width = static_cast<int>(gated.width);
  args.second = static_cast<int>(gated.second);
  args.weight = w.data;
  args.scales = w.scales;
  args.bias = bias;
  args.y = y.row<float>(0);
  args.y_stride = y.stride;
  args.rows = static_cast<int>(w.rows);
  args.cols = static_cast<int>(w.cols);
  args.tokens = static_cast<int>(y.rows);
  if (w.format.dtype == DType::bf16) {
    return launch_gemv<DType::bf16, ScaleKind::none>(args, stream);
  }
  if (w.format.scales == ScaleKind::per_row) {
    return launch_gemv<DType::f8_e4m3, ScaleKind::per_row>(args, stream);
  }
  check(w.format.scales == ScaleKind::per_block, "f8_e4m3 codes have scales");
  launch_gemv<DType::f8_e4m3, ScaleKind::per_block>(args, stream);
}

}  // namespace

static_assert(kMmaRows == kPanelRows && kMmaCols == kScaleBlock, "a warp's step has one scale");

bool gemv_mma_fits(const Weight& w) {
  const bool codes = w.format.dtype == DType::bf16 || w.format.dtype == DType::f8_e4m3;
  return codes && w.cols * dtype_bytes(w.format.dtype) % kLaneBytes == 0 &&
         reinterpret_cast<uintptr_t>(w.data) % kLaneBytes == 0;
}

bool gemv_mma_rounds(Tensor x) {
  const int64_t cols = ceil_div(x.cols, kMmaCols) * kMmaCols;
  return x.rows <= kStagedTokens && x.rows * cols * 2 <= kStagedBytes && x.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void gemv_mma(Tensor x, const Weight& w, const float* bias, const GatedRows& gated, Tensor y,
              Stream stream) {
  check(gemv_mma_fits(w) && gemv_mma_rounds(x) && x.cols == w.cols && x.rows == y.rows,
        "operands that fragments fit");
  GemvArgs args{};
  args.unrounded = x.row<float>(0);
  args.x_stride = x.stride;
  args.x_cols = static_cast<int>(ceil_div(x.cols, kMmaCols) * kMmaCols);
  launch_any(args, w, bias, gated, y, stream);
}

void gemv_mma(Bf16Rows x, const Weight& w, const float* bias, const GatedRows& gated, Tensor y,
              Stream stream) {
  check(gemv_mma_fits(w) && x.cols % kMmaCols == 0 && x.cols >= w.cols && y.rows <= x.rows &&
            x.rows <= 2 * kMmaTokens,
        "operands that fragments fit");
  GemvArgs args{};
  args.x = x.data;
  args.x_scales = x.scales;
  args.x_cols = static_cast<int>(x.cols);
  launch_any(args, w, bias, gated, y, stream);
}

}  // namespace sluice::cuda
