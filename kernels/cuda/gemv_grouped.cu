// A few rows of x times a weight of grouped codes, by tensor cores, as gemv_mma.cu does it: the
// weight's 16 rows are the rows of fragment A, tokens are the columns of B, and the numbers of k
// are free.
//
// Fragments have code - zero, which bf16 holds exactly; a group's sum is then multiplied by its
// scale. A warp takes 128 columns at a time. Lane 4g + t has 32 of them in rows g and g + 8, as
// four pieces of 8. Where the 128 have one scale, 4-bit codes are read 16 bytes at a time: lane t
// has run t (quant/groups.h). Elsewhere piece j is the part t of run j, so that each pair of mma
// stays within a group.
#include <algorithm>
#include <bit>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/simt.h"
#include "quant/groups.h"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kCols = static_cast<int>(kMmaCols), kRows = static_cast<int>(kMmaRows);
constexpr int kPieces = kCols / kRunCols;  // of a lane
constexpr int kPieceCols = 8;
constexpr uint32_t kMagic =
    0x43004300;  // a bf16 pair of 128, in whose last bits a code of 4 bits stands
constexpr uint32_t kMinusMagic = 0xc300c300;  // its negative

struct GroupedArgs {
  const uint32_t* codes;
  const uint16_t* scales;
  const uint8_t* zeros;  // or null
  bool bf16_scales;
  int zero_base;
  int row_words, groups, group_cols;
  int group_shift;  // group_cols as a power of two; -1: it is none
  const float* bias;
  const uint16_t* x;  // [tokens][x_cols], zeros behind its columns
  int x_cols;
  float* y;
  int64_t y_stride;
  int rows, cols, tokens;
};

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
  uint16_t scales[kGroups];
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
__device__ void load_part(const GroupedArgs& a, int row, int col, int t,
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
    to.scales[j] = a.scales[group + group_at(begin)];
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

// total += the products of 128 columns from `col` on.
template <int kBits, bool kOneGroup, int kTiles>
__device__ void multiply_parts(const GroupedArgs& a, const Part<kBits, kOneGroup> (&parts)[2],
                               int col, float (&total)[kTiles][4]) {
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
      if (token < a.tokens)
        x[tile] = load_as<Vec<uint32_t, 4>>(a.x + int64_t{token} * a.x_cols + from);
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
          fa[k] = bf16x2_add(pair | kMagic, zeros[k % 2]);
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
      const uint16_t bits = parts[half].scales[group];
      scales[half] = a.bf16_scales ? bf16_to_float(bits) : f16_to_float(bits);
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

// A block takes 16 rows; its warps take 128 columns in turn, of which the next are on their way
// while some are multiplied.
template <int kBits, bool kOneGroup, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, 2) grouped_mma_kernel(GroupedArgs a) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(blockIdx.x) * kRows + g;
  const int step = warps * kCols;
  int col = warp * kCols;
  Part<kBits, kOneGroup> parts[2], next[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) load_part(a, row + half * 8, col, t, parts[half]);
  wait_for_earlier();
  float total[kTiles][4] = {};
  for (; col < a.cols; col += step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_part(a, row + half * 8, col + step, t, next[half]);
    multiply_parts<kBits, kOneGroup, kTiles>(a, parts, col, total);
    parts[0] = next[0];
    parts[1] = next[1];
  }
  float* partial = &shared_memory<float>();
  leave_partial<kTiles>(total, partial);
  __syncthreads();
  add_partial<kTiles>(partial, [&](int r, int token, float sum) {
    const int output = static_cast<int>(blockIdx.x) * kRows + r;
    if (output >= a.rows || token >= a.tokens) return;
    a.y[token * a.y_stride + output] = a.bias == nullptr ? sum : sum + a.bias[output];
  });
}

template <int kBits, bool kOneGroup>
void launch_grouped(const GroupedArgs& args, Stream stream) {
  const uint32_t warps = block_threads(ceil_div(args.cols, kMmaCols) * 32, kMostWarps * 32) / 32;
  const int tiles = args.tokens > kMmaTokens ? 2 : 1;
  const Launch at{{static_cast<uint32_t>(ceil_div(args.rows, kMmaRows))},
                  {warps * 32},
                  warps * static_cast<uint32_t>(tiles * kMmaTokens * kMmaRows * 4)};
  if (tiles == 1) {
    launch_early(grouped_mma_kernel<kBits, kOneGroup, 1>, at, stream, args);
  } else {
    launch_early(grouped_mma_kernel<kBits, kOneGroup, 2>, at, stream, args);
  }
}

struct GatherArgs {
  const float* x;
  int64_t x_stride;
  const int32_t* order;
  int cols, to_cols;
  uint16_t* to;
};

// x in the weight's order of columns, rounded to bf16.
__global__ void __launch_bounds__(kElementwiseThreads) gather_kernel(GatherArgs a) {
  const int c = static_cast<int>(elementwise_column(1));
  if (c >= a.to_cols) return;
  const float value = c < a.cols ? a.x[blockIdx.x * a.x_stride + a.order[c]] : 0.0f;
  a.to[int64_t{blockIdx.x} * a.to_cols + c] = float_to_bf16(value);
}

void round_rows(Tensor x, const Weight& w, Bf16Rows to, Stream stream) {
  if (w.order == nullptr) return round_rows_bf16(x, to, stream);
  const GatherArgs args{x.row<float>(0),           x.stride, w.order, static_cast<int>(w.cols),
                        static_cast<int>(to.cols), to.data};
  launch(gather_kernel, elementwise_launch(x.rows, to.cols, 1), stream, args);
}

}  // namespace

bool gemv_grouped_fits(const Weight& w) {
  const int bits = w.format.bits;
  const WeightFormat& f = w.format;
  const bool halves = f.scale_type == DType::f16 || f.scale_type == DType::bf16;
  return f.scales == ScaleKind::grouped && f.table == CodeTable::integers && halves &&
         f.outer == Outer::none && f.scale_cols % kRunCols == 0 &&
         (bits == 2 || bits == 3 || bits == 4 || bits == 8) &&
         reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
}

void gemv_grouped(Tensor x, const Weight& w, const float* bias, std::byte* workspace, Tensor y,
                  Stream stream) {
  check(gemv_grouped_fits(w) && x.cols == w.cols && x.rows == y.rows && x.rows <= 2 * kMmaTokens,
        "operands that fragments fit");
  const Bf16Rows rounded{
      reinterpret_cast<uint16_t*>(workspace), x.rows, ceil_div(x.cols, kMmaCols) * kMmaCols, {}};
  round_rows(x, w, rounded, stream);
  GroupedArgs args{};
  args.codes = reinterpret_cast<const uint32_t*>(w.data);
  args.scales = reinterpret_cast<const uint16_t*>(w.group_scales);
  args.zeros = w.zeros;
  args.bf16_scales = w.format.scale_type == DType::bf16;
  args.zero_base = w.format.zero_base;
  args.row_words = static_cast<int>(grouped_row_bytes(w.format, w.cols) / 4);
  args.groups = static_cast<int>(groups_of(w.format, w.cols));
  args.group_cols = static_cast<int>(std::min(group_cols(w.format), w.cols));
  args.group_shift = std::has_single_bit(static_cast<uint32_t>(args.group_cols))
                         ? std::countr_zero(static_cast<uint32_t>(args.group_cols))
                         : -1;
  args.bias = bias;
  args.x = rounded.data;
  args.x_cols = static_cast<int>(rounded.cols);
  args.y = y.row<float>(0);
  args.y_stride = y.stride;
  args.rows = static_cast<int>(w.rows);
  args.cols = static_cast<int>(w.cols);
  args.tokens = static_cast<int>(y.rows);
  const bool one_group = args.group_cols % kMmaCols == 0 || args.groups == 1;
  auto launch_bits = [&]<int kBits>(Constant<kBits>) {
    one_group ? launch_grouped<kBits, true>(args, stream)
              : launch_grouped<kBits, false>(args, stream);
  };
  switch (w.format.bits) {
    case 2:
      return launch_bits(Constant<2>{});
    case 3:
      return launch_bits(Constant<3>{});
    case 4:
      return launch_bits(Constant<4>{});
    default:
      return launch_bits(Constant<8>{});
  }
}

}  // namespace sluice::cuda
