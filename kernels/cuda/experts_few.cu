// Experts of a few rows: a block takes some outputs of one pair, or of all pairs of one row, so
// that one launch reads what all chosen experts have, as fast as memory gives it. Sums are those of
// gemv_mma, in its order: kept in as many accumulators as it has warps, of kMmaCols columns in
// turn.
#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_matrix.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostSums = 8;  // accumulators: gemv_mma's most warps
constexpr int kUpWarps = 8;
constexpr int kDownWarps = 16;
constexpr int64_t kProcessors = 132;  // of an H100 or H200
constexpr int kRows = static_cast<int>(kMmaRows), kCols = static_cast<int>(kMmaCols);
constexpr int64_t kStagedBytes = 32 * 1024;

int accumulators(int64_t cols) {
  return static_cast<int>(std::min<int64_t>(ceil_div(cols, kMmaCols), kMostSums));
}

// Scales of one token's codes, and of the weight's blocks.
struct Scales {
  const float* x;       // null, or of the token: one, or one for each block of columns
  int64_t block_step;   // of x
  const float* weight;  // of the expert
  int blocks;           // of columns: the step from a panel's to the next's
};

// total += the products of kMmaCols columns of one token; `mine`: the lane's first.
template <DType kCodes, ScaleKind kScales>
__device__ void multiply_slice(const Slice<kCodes>& slice, const uint16_t* x, int mine,
                               const LaneRows& rows, const Scales& s, float (&total)[4]) {
  using S = Slice<kCodes>;
  const bool there = threadIdx.x % 32 / 4 == 0;  // the token's column of the fragment
  if constexpr (kScales != ScaleKind::per_block) {
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v)
      multiply<kCodes>(slice.at[v], x + mine + v * 4 * S::kElements, there, total);
  } else {
    float sum[4] = {};
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v)
      multiply<kCodes>(slice.at[v], x + mine + v * 4 * S::kElements, there, sum);
    const int block = mine / kCols;
    const float by = s.block_step == 0 ? 1.0f : s.x[block * s.block_step];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale =
          rows.there[half] ? s.weight[int64_t{rows.at[half] / kRows} * s.blocks + block] : 0.0f;
      total[2 * half] += sum[2 * half] * by * scale;
    }
  }
}

// A sum as gemv_mma finishes it.
template <ScaleKind kScales>
__device__ float finish(float sum, int row, const Scales& s, const float* bias) {
  if (s.x != nullptr && s.block_step == 0) sum *= *s.x;
  if (kScales == ScaleKind::per_row) sum *= s.weight[row];
  return bias == nullptr ? sum : sum + bias[row];
}

__device__ inline Scales scales_of(const InputScales& x, int64_t row, const ExpertPlanes& w,
                                   int64_t expert) {
  return {x.at == nullptr ? nullptr : x.at + row * x.row_step, x.block_step,
          w.scales == nullptr ? nullptr : w.scales_of(expert), (w.cols + kCols - 1) / kCols};
}

struct UpArgs {
  ExpertPlanes w;
  const int32_t* experts;
  int used;
  const uint16_t* x;
  const float* unrounded;  // kStage: in the place of x
  int64_t x_stride;
  int x_cols;
  InputScales x_scales;
  Gating gating;
  int width, second;
  int tiles, all_tiles;  // of a pair; of all pairs
  uint16_t* inner;
  int inner_cols;
  float* unrounded_inner;  // in the place of `inner`
  int64_t inner_stride;
};

// A tile of a pair: 16 rows of the weight, which are eight of a gate and those of its factor.
struct UpTile {
  int64_t pair;
  int first;  // activated column
};
__device__ inline int outputs_of(const UpArgs& a) { return a.second > 0 ? 8 : kRows; }
__device__ inline UpTile up_tile(const UpArgs& a, int tile) {
  const int pair = tile / a.tiles;
  return {pair, (tile - pair * a.tiles) * outputs_of(a)};
}

// Stores activated columns: of a gate and its factor, rows g and g + 8 of the fragments, or each
// row by itself. `sum` is finished, in lanes of the fragments' rows.
__device__ inline void store_inner(const UpArgs& a, const UpTile& tile, float sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const float factor = __shfl_down_sync(kAllLanes, sum, 8);
  const int c = tile.first + lane;
  if (lane >= outputs_of(a) || c >= a.inner_cols) return;
  float value = 0;
  if (c < a.width) value = gated_value(a.gating, sum, factor, a.second > 0);
  if (a.inner != nullptr) {
    a.inner[tile.pair * a.inner_cols + c] = float_to_bf16(value);
  } else {
    a.unrounded_inner[tile.pair * a.inner_stride + c] = value;
  }
}

// A part of a tile that is read next; its expert is on its way, too.
struct Ahead {
  int tile, part, expert;
};

template <DType kCodes>
__device__ Slice<kCodes> load_ahead(const UpArgs& a, int parts, Ahead& at) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int first = up_tile(a, at.tile).first;
  const bool there = at.tile < a.all_tiles && first + g < a.width, gated = a.second > 0;
  const LaneRows rows{{first + g, gated ? a.second + first + g : first + g + 8},
                      {there, gated ? there : there && first + g + 8 < a.width}};
  const Slice<kCodes> slice =
      load_slice<kCodes>(a.w.codes_of(at.expert), a.w.cols, rows,
                         (at.part * warps + warp) * kCols + t * Slice<kCodes>::kElements);
  if (++at.part < parts) return slice;
  at.part = 0;
  at.tile += static_cast<int>(gridDim.x);
  at.expert = at.tile < a.all_tiles ? a.experts[up_tile(a, at.tile).pair] : 0;
  return slice;
}

// The block's sums of a tile, by its first warp.
template <ScaleKind kScales>
__device__ void finish_tile(const UpArgs& a, const UpTile& tile, const float* partial) {
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x);
  const int64_t expert = a.experts[tile.pair];
  const Scales scales = scales_of(a.x_scales, tile.pair / a.used, a.w, expert);
  const bool gated = a.second > 0;
  float sum = 0;
  if (lane < kRows && tile.first + (gated ? lane % 8 : lane) < a.width) {
    sum = partial[lane];
    for (int w = 1; w < warps; ++w) sum += partial[w * kRows + lane];
    const int row = tile.first + (gated && lane >= 8 ? a.second + lane - 8 : lane);
    sum = finish<kScales>(sum, row, scales, a.w.bias_of(expert));
  }
  store_inner(a, tile, sum);
}

// total += a warp's columns of a part of a tile.
template <DType kCodes, ScaleKind kScales>
__device__ void multiply_part(const UpArgs& a, const UpTile& tile, const Slice<kCodes>& slice,
                              const uint16_t* x, int col, float (&total)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  if (col >= a.w.cols) return;
  LaneRows rows{};
  Scales scales{};
  if constexpr (kScales == ScaleKind::per_block) {  // no other looks at them here
    const int first = tile.first + g, other = a.second > 0 ? a.second + first : first + 8;
    rows = {{first, other}, {first < a.width, other < a.w.rows}};
    scales = scales_of(a.x_scales, tile.pair / a.used, a.w, a.experts[tile.pair]);
  }
  multiply_slice<kCodes, kScales>(slice, x, col + t * Slice<kCodes>::kElements, rows, scales,
                                  total);
}

// A block takes tiles in turn; its warps take kMmaCols columns of each in turn, two of which are on
// their way while one is multiplied, over the ends of tiles.
template <DType kCodes, ScaleKind kScales, bool kStage>
__global__ void __launch_bounds__(kUpWarps * 32, 2) experts_up_kernel(UpArgs a) {
  wait_for_earlier();
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4;
  const int parts = (a.w.cols + warps * kCols - 1) / (warps * kCols);
  float *memory = &shared_memory<float>(), *partial = memory;  // [2][warps][kRows], in turn
  auto* staged = reinterpret_cast<uint16_t*>(memory + 2 * warps * kRows);
  const int begin = static_cast<int>(blockIdx.x);
  Ahead ahead{begin, 0, a.experts[up_tile(a, begin).pair]};
  Slice<kCodes> slice = load_ahead<kCodes>(a, parts, ahead);
  Slice<kCodes> next = load_ahead<kCodes>(a, parts, ahead);
  int64_t here = -1;  // whose x is staged
  for (int i = begin; i < a.all_tiles; i += static_cast<int>(gridDim.x)) {
    const UpTile tile = up_tile(a, i);
    const int64_t token = tile.pair / a.used;
    const uint16_t* x = kStage ? staged : a.x + token * a.x_cols;
    if (kStage && token != here) {
      __syncthreads();
      stage_row(a.unrounded + token * a.x_stride, a.w.cols, staged, a.x_cols);
      __syncthreads();
      here = token;
    }
    float total[4] = {};
    for (int part = 0; part < parts; ++part) {
      multiply_part<kCodes, kScales>(a, tile, slice, x, (part * warps + warp) * kCols, total);
      slice = next;
      next = load_ahead<kCodes>(a, parts, ahead);
    }
    if (lane % 4 == 0) {
      partial[warp * kRows + g] = total[0];
      partial[warp * kRows + g + 8] = total[2];
    }
    __syncthreads();
    if (warp == 0) finish_tile<kScales>(a, tile, partial);
    partial = partial == memory ? memory + warps * kRows : memory;
  }
}

struct DownArgs {
  ExpertPlanes w;
  const int32_t* experts;
  const float* weights;
  int used, sums;  // accumulators of an output
  const uint16_t* x;
  int x_cols;
  InputScales x_scales;
  const float* shared;  // or null
  int64_t shared_stride;
  const float* shared_weights;  // or null
  int64_t shared_weights_stride;
  float* y;
  int64_t y_stride;
};

// A block takes 16 outputs of one row, of all of its experts. A *unit* is an accumulator of a pair:
// each warp takes every `warps`th of them, and its columns in turn, the next on their way.
template <DType kCodes, ScaleKind kScales>
__global__ void __launch_bounds__(kDownWarps * 32, 1) experts_down_kernel(DownArgs a) {
  wait_for_earlier();
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int64_t token = blockIdx.y, first_pair = token * a.used;
  const int first = static_cast<int>(blockIdx.x) * kRows, units = a.used * a.sums;
  float* partial = &shared_memory<float>();  // [units][kRows]
  float* outputs = partial + units * kRows;  // [used][kRows]
  const LaneRows rows{{first + g, first + g + 8}, {first + g < a.w.rows, first + g + 8 < a.w.rows}};
  const int slices = (a.w.cols + kCols - 1) / kCols, parts = (slices + a.sums - 1) / a.sums;
  const int lane_col = t * Slice<kCodes>::kElements;
  auto load = [&](int unit, int part) {
    const bool there = unit < units;  // behind the last one nothing is read
    const int64_t expert = there ? a.experts[first_pair + unit / a.sums] : 0;
    const LaneRows mine{{rows.at[0], rows.at[1]}, {there && rows.there[0], there && rows.there[1]}};
    return load_slice<kCodes>(a.w.codes_of(expert), a.w.cols, mine,
                              (unit % a.sums + part * a.sums) * kCols + lane_col);
  };
  int unit = warp, part = 0;
  Slice<kCodes> slice = load(unit, part);
  float total[4] = {};
  while (unit < units) {
    const bool last = part + 1 == parts;
    const int next_unit = last ? unit + warps : unit, next_part = last ? 0 : part + 1;
    const Slice<kCodes> next = load(next_unit, next_part);
    const int64_t pair = first_pair + unit / a.sums;
    const int index = unit % a.sums + part * a.sums;
    if (index < slices) {
      const Scales scales = scales_of(a.x_scales, pair, a.w, a.experts[pair]);
      multiply_slice<kCodes, kScales>(slice, a.x + pair * a.x_cols, index * kCols + lane_col, rows,
                                      scales, total);
    }
    if (last) {
      if (t == 0) {
        partial[unit * kRows + g] = total[0];
        partial[unit * kRows + g + 8] = total[2];
      }
      for (float& sum : total) sum = 0;
    }
    slice = next;
    unit = next_unit;
    part = next_part;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < a.used * kRows;
       i += static_cast<int>(blockDim.x)) {
    const int choice = i / kRows, row = first + i % kRows;
    if (row >= a.w.rows) continue;
    const float* sums = partial + choice * a.sums * kRows + i % kRows;
    float sum = sums[0];
    for (int s = 1; s < a.sums; ++s) sum += sums[s * kRows];
    const int64_t pair = first_pair + choice, expert = a.experts[pair];
    outputs[i] =
        a.weights[pair] *
        finish<kScales>(sum, row, scales_of(a.x_scales, pair, a.w, expert), a.w.bias_of(expert));
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x), row = first + i;
  if (i >= kRows || row >= a.w.rows) return;
  float sum = 0;
  for (int choice = 0; choice < a.used; ++choice) sum += outputs[choice * kRows + i];
  if (a.shared != nullptr) {
    float more = a.shared[token * a.shared_stride + row];
    if (a.shared_weights != nullptr) more *= a.shared_weights[token * a.shared_weights_stride];
    sum += more;
  }
  a.y[token * a.y_stride + row] = sum;
}

}  // namespace

bool experts_few_round(Tensor x) {
  const int64_t cols = ceil_div(x.cols, kMmaCols) * kMmaCols;
  return cols * 2 <= kStagedBytes && x.stride % 4 == 0 && x.cols % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void experts_few_up(const ExpertInput& x, const ExpertWeights& w, int64_t used,
                    const ExpertChoices& choices, int64_t rows, const ExpertInner& inner,
                    Stream stream) {
  const bool staged = x.unrounded.data != nullptr;
  const int64_t cols = w.up.first.cols;
  UpArgs a{};
  a.w = planes_of(w.up);
  a.experts = choices.experts;
  a.used = static_cast<int>(used);
  a.x = x.rounded.data;
  a.x_cols = static_cast<int>(staged ? ceil_div(cols, kMmaCols) * kMmaCols : x.rounded.cols);
  check(a.x_cols % kMmaCols == 0 && a.x_cols >= cols, "rows of x that fragments fit");
  if (staged) {
    a.unrounded = x.unrounded.row<float>(0);
    a.x_stride = x.unrounded.stride;
  }
  a.x_scales = x.rounded.scales;
  a.gating = gating_of(w);
  a.width = static_cast<int>(w.width);
  a.second = static_cast<int>(w.second);
  a.inner = inner.rounded.data;
  a.inner_cols = static_cast<int>(inner.rounded.cols);
  if (inner.unrounded.data != nullptr) {
    a.inner = nullptr;
    a.inner_cols = static_cast<int>(w.width);
    a.unrounded_inner = inner.unrounded.row<float>(0);
    a.inner_stride = inner.unrounded.stride;
  }
  const auto warps = static_cast<uint32_t>(accumulators(cols));
  a.tiles = static_cast<int>(ceil_div(a.inner_cols, w.second > 0 ? 8 : kRows));
  a.all_tiles = static_cast<int>(rows * used) * a.tiles;
  const uint32_t x_bytes = staged ? static_cast<uint32_t>(a.x_cols) * 2 : 0;
  const Launch at{{static_cast<uint32_t>(std::min<int64_t>(a.all_tiles, 2 * kProcessors))},
                  {warps * 32},
                  2 * warps * kRows * 4 + x_bytes};
  with_expert_format(w.up.first.format, [&](auto codes, auto scales) {
    staged ? launch_early(experts_up_kernel<codes(), scales(), true>, at, stream, a)
           : launch_early(experts_up_kernel<codes(), scales(), false>, at, stream, a);
  });
}

void experts_few_down(const Bf16Rows& inner, const ExpertWeights& w, int64_t used,
                      const ExpertChoices& choices, const SharedExpert& shared, Tensor y,
                      Stream stream) {
  check(inner.cols % kMmaCols == 0 && y.cols == w.down.first.rows, "rows that fragments fit");
  DownArgs a{};
  a.w = planes_of(w.down);
  a.experts = choices.experts;
  a.weights = choices.weights;
  a.used = static_cast<int>(used);
  a.sums = accumulators(w.down.first.cols);
  a.x = inner.data;
  a.x_cols = static_cast<int>(inner.cols);
  a.x_scales = inner.scales;
  set_shared(shared, a);
  a.y = y.row<float>(0);
  a.y_stride = y.stride;
  const int units = a.used * a.sums;
  // One block a multiprocessor needs all warps to keep memory busy; of more, two have room.
  const int64_t blocks = ceil_div(y.cols, kMmaRows) * y.rows;
  const uint32_t most = blocks <= kProcessors ? kDownWarps : kDownWarps / 2;
  const uint32_t warps = block_threads(int64_t{units} * 32, most * 32) / 32;
  const Launch at{
      {static_cast<uint32_t>(ceil_div(y.cols, kMmaRows)), static_cast<uint32_t>(y.rows)},
      {warps * 32},
      static_cast<uint32_t>((units + a.used) * kRows * 4)};
  with_expert_format(w.down.first.format, [&](auto codes, auto scales) {
    launch_early(experts_down_kernel<codes(), scales()>, at, stream, a);
  });
}

}  // namespace sluice::cuda
