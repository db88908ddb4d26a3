// Experts of a few rows: a block takes some outputs of one pair, or of all pairs of one row, so
// that one launch reads what all chosen experts have, as fast as memory gives it. Sums are those of
// gemv_panels, in its order: kept in as many accumulators as it has warps, of steps in turn.
#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_matrix.cuh"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostSums = 8;  // accumulators: gemv_panels' most warps
constexpr int kUpWarps = 8;
constexpr int kDownWarps = 16;
constexpr int kPanel = static_cast<int>(kPanelRows);
constexpr int64_t kStagedBytes = 32 * 1024;

int accumulators(const Weight& w) {
  const int64_t cells = panel_step(w) / kCellBytes;
  return static_cast<int>(std::clamp<int64_t>(ceil_div(cells, kStepCells), 1, kMostSums));
}

// Scales of one token's codes, and of the weight's blocks.
struct Scales {
  const float* x;       // null, or of the token: one, or one for each block of columns
  int64_t block_step;   // of x
  const float* weight;  // of the expert
  int blocks;           // of columns: the step from a panel's to the next's
};

// total += a step's products of one token; `row`: the first of the lane's panel.
template <DType kCodes, ScaleKind kScales>
__device__ void multiply_step(const Granules& w, const uint16_t* x, int step, int row, bool there,
                              const Scales& s, PanelSums<float, 1>& total) {
  x += (step * 4 + static_cast<int>(threadIdx.x) % 4) * kStepLoads * kCellCols<kCodes>;
  if constexpr (kScales != ScaleKind::per_block) {
    multiply_granules<kCodes>(w, x, 0, 1, total);
  } else {
    PanelSums<float, 1> sums{};
    multiply_granules<kCodes>(w, x, 0, 1, sums);
    if (!there) return;
    const float by = s.block_step == 0 ? 1.0f : s.x[step * s.block_step];
    const float scale = s.weight[int64_t{row / kPanel} * s.blocks + step];
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total.at[0][f][i] += sums.at[0][f][i] * by * scale;
    }
  }
}

// A sum as gemv_panels finishes it.
template <ScaleKind kScales>
__device__ float finish(float sum, int row, const Scales& s, const float* bias) {
  if (s.x != nullptr && s.block_step == 0) sum *= *s.x;
  if (kScales == ScaleKind::per_row) sum *= s.weight[row];
  return bias == nullptr ? sum : sum + bias[row];
}

__device__ inline Scales scales_of(const InputScales& x, int64_t row, const ExpertPlanes& w,
                                   int64_t expert) {
  constexpr int kBlock = static_cast<int>(kScaleBlock);
  return {x.at == nullptr ? nullptr : x.at + row * x.row_step, x.block_step,
          w.scales == nullptr ? nullptr : w.scales_of(expert), (w.cols + kBlock - 1) / kBlock};
}

// The granules of a step of an expert: of the panel that begins with `row`.
__device__ inline Granules load_step(const ExpertPlanes& w, int64_t expert, int row, bool there,
                                     int step) {
  const std::byte* codes = w.codes_of(there ? expert : 0);
  const PanelLane lane =
      panel_lane(codes + int64_t{there ? row / kPanel : 0} * w.panel_bytes, there);
  return load_granules(lane, step * kStepCells, w.cells);
}

struct UpArgs {
  ExpertPlanes w;
  const int32_t* experts;
  int top_k;
  const uint16_t* x;
  const float* unrounded;  // kStage: in the place of x
  int64_t x_stride;
  int x_cols;
  InputScales x_scales;
  Gating gating;
  int width, second;
  int tiles, all_tiles;  // of a pair; of all pairs
  uint16_t* inner;
  int inner_cols, inner_cell;
  float* unrounded_inner;  // in the place of `inner`
  int64_t inner_stride;
};

// A tile of a pair: two panels, which are one of a gate and that of its factor, or neighbours.
struct UpTile {
  int64_t pair;
  int first;  // activated column
};
__device__ inline int outputs_of(const UpArgs& a) { return a.second > 0 ? kPanel : kPairRows; }
__device__ inline UpTile up_tile(const UpArgs& a, int tile) {
  const int pair = tile / a.tiles;
  return {pair, (tile - pair * a.tiles) * outputs_of(a)};
}
// The first row of this lane's panel.
__device__ inline int panel_row(const UpArgs& a, const UpTile& tile) {
  const int panel = static_cast<int>(threadIdx.x) % 32 / 16;
  return tile.first + panel * (a.second > 0 ? a.second : kPanel);
}
__device__ inline bool is_there(const UpArgs& a, const UpTile& tile) {
  return a.second > 0 ? tile.first < a.width : panel_row(a, tile) < a.width;
}

// Stores activated columns: of a gate and its factor, whose rows are the lanes' and those of 16
// further, or each row by itself. `sum` is finished.
__device__ inline void store_inner(const UpArgs& a, const UpTile& tile, float sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const float factor = __shfl_down_sync(kAllLanes, sum, kPanel);
  const int c = tile.first + lane;
  if (lane >= outputs_of(a) || c >= a.inner_cols) return;
  float value = 0;
  if (c < a.width) value = gated_value(a.gating, sum, factor, a.second > 0);
  if (a.inner != nullptr) {
    a.inner[tile.pair * a.inner_cols + fragment_place(c, a.inner_cell)] = float_to_bf16(value);
  } else {
    a.unrounded_inner[tile.pair * a.inner_stride + c] = value;
  }
}

// A part of a tile that is read next; its expert is on its way, too.
struct Ahead {
  int tile, part, expert;
};

__device__ inline Granules load_ahead(const UpArgs& a, int parts, Ahead& at) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const UpTile tile = up_tile(a, at.tile);
  const bool there = at.tile < a.all_tiles && is_there(a, tile);
  const Granules w = load_step(a.w, at.expert, panel_row(a, tile), there, at.part * warps + warp);
  if (++at.part < parts) return w;
  at.part = 0;
  at.tile += static_cast<int>(gridDim.x);
  at.expert = at.tile < a.all_tiles ? a.experts[up_tile(a, at.tile).pair] : 0;
  return w;
}

// The block's sums of a tile, by its first warp.
template <ScaleKind kScales>
__device__ void finish_tile(const UpArgs& a, const UpTile& tile, const float* partial) {
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x);
  const int64_t expert = a.experts[tile.pair];
  const Scales scales = scales_of(a.x_scales, tile.pair / a.top_k, a.w, expert);
  const bool gated = a.second > 0;
  float sum = 0;
  if (tile.first + (gated ? lane % kPanel : lane) < a.width) {
    sum = partial[lane];
    for (int w = 1; w < warps; ++w) sum += partial[w * kPairRows + lane];
    const int row = tile.first + (gated && lane >= kPanel ? a.second + lane - kPanel : lane);
    sum = finish<kScales>(sum, row, scales, a.w.bias_of(expert));
  }
  store_inner(a, tile, sum);
}

// A block takes tiles in turn; its warps take steps of each in turn, two of which are on their way
// while one is multiplied, over the ends of tiles.
template <DType kCodes, ScaleKind kScales, bool kStage>
__global__ void __launch_bounds__(kUpWarps * 32, 2) experts_up_kernel(UpArgs a) {
  wait_for_earlier();
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int steps = (a.w.cells + kStepCells - 1) / kStepCells, parts = (steps + warps - 1) / warps;
  float *memory = &shared_memory<float>(), *partial = memory;  // [2][warps][kPairRows], in turn
  auto* staged = reinterpret_cast<uint16_t*>(memory + 2 * warps * kPairRows);
  const int begin = static_cast<int>(blockIdx.x);
  Ahead ahead{begin, 0, a.experts[up_tile(a, begin).pair]};
  Granules w = load_ahead(a, parts, ahead);
  int64_t here = -1;  // whose x is staged
  for (int i = begin; i < a.all_tiles; i += static_cast<int>(gridDim.x)) {
    const UpTile tile = up_tile(a, i);
    const int64_t token = tile.pair / a.top_k;
    const uint16_t* x = kStage ? staged : a.x + token * a.x_cols;
    if (kStage && token != here) {
      __syncthreads();
      stage_row<kCellCols<kCodes>>(a.unrounded + token * a.x_stride, a.w.cols, staged, a.x_cols);
      __syncthreads();
      here = token;
    }
    Scales scales{};
    if constexpr (kScales == ScaleKind::per_block)  // no other looks at them here
      scales = scales_of(a.x_scales, token, a.w, a.experts[tile.pair]);
    PanelSums<float, 1> total{};
    for (int part = 0; part < parts; ++part) {
      const Granules next = load_ahead(a, parts, ahead);
      const int step = part * warps + warp;
      if (step < steps)
        multiply_step<kCodes, kScales>(w, x, step, panel_row(a, tile), is_there(a, tile), scales,
                                       total);
      w = next;
    }
    if (static_cast<int>(threadIdx.x) % 4 == 0)
      store_as(partial + warp * kPairRows + lane_rows(), rows_of_token(total.at[0], 0));
    __syncthreads();
    if (warp == 0) finish_tile<kScales>(a, tile, partial);
    partial = partial == memory ? memory + warps * kPairRows : memory;
  }
}

struct DownArgs {
  ExpertPlanes w;
  const int32_t* experts;
  int top_k, sums;  // accumulators of an output
  int panels;       // of a block: 2, or 1 of few outputs
  const uint16_t* x;
  int x_cols;
  InputScales x_scales;
  ExpertOutputs out;
};

// The sums of 16 or 32 outputs of one row, of all of its experts. A *unit* is an accumulator of a
// pair: each warp takes every `warps`th of them, and its steps in turn, the next on their way.
template <DType kCodes, ScaleKind kScales>
__device__ void sum_units(const DownArgs& a, int first, float* partial) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first_pair = int64_t{blockIdx.y} * a.top_k;
  const int steps = (a.w.cells + kStepCells - 1) / kStepCells,
            parts = (steps + a.sums - 1) / a.sums;
  const int panel = static_cast<int>(threadIdx.x) % 32 / 16, row = first + panel * kPanel;
  const int units = a.top_k * a.sums;
  const bool here = panel < a.panels && row < a.w.rows;
  auto load = [&](int unit, int part) {
    const bool there = here && unit < units;  // behind the last one nothing is read
    const int64_t expert = there ? a.experts[first_pair + unit / a.sums] : 0;
    return load_step(a.w, expert, row, there, unit % a.sums + part * a.sums);
  };
  int unit = warp, part = 0;
  Granules w = load(unit, part);
  PanelSums<float, 1> total{};
  while (unit < units) {
    const bool last = part + 1 == parts;
    const int next_unit = last ? unit + warps : unit, next_part = last ? 0 : part + 1;
    const Granules next = load(next_unit, next_part);
    const int64_t pair = first_pair + unit / a.sums;
    const int step = unit % a.sums + part * a.sums;
    if (step < steps) {
      Scales scales{};
      if constexpr (kScales == ScaleKind::per_block)
        scales = scales_of(a.x_scales, pair, a.w, a.experts[pair]);
      multiply_step<kCodes, kScales>(w, a.x + pair * a.x_cols, step, row, here, scales, total);
    }
    if (last) {
      if (static_cast<int>(threadIdx.x) % 4 == 0)
        store_as(partial + unit * kPairRows + lane_rows(), rows_of_token(total.at[0], 0));
      total = {};
    }
    w = next;
    unit = next_unit;
    part = next_part;
  }
}

// x: outputs; y: rows.
template <DType kCodes, ScaleKind kScales>
__global__ void __launch_bounds__(kDownWarps * 32, 1) experts_down_kernel(DownArgs a) {
  wait_for_earlier();
  const int64_t token = blockIdx.y, first_pair = token * a.top_k;
  const int first = static_cast<int>(blockIdx.x) * a.panels * kPanel, units = a.top_k * a.sums;
  float* partial = &shared_memory<float>();      // [units][kPairRows]
  float* outputs = partial + units * kPairRows;  // [top_k][kPairRows]
  sum_units<kCodes, kScales>(a, first, partial);
  __syncthreads();
  const int end = first + a.panels * kPanel < a.w.rows ? first + a.panels * kPanel : a.w.rows;
  for (int i = static_cast<int>(threadIdx.x); i < a.top_k * kPairRows;
       i += static_cast<int>(blockDim.x)) {
    const int choice = i / kPairRows, row = first + i % kPairRows;
    if (row >= end) continue;
    const float* sums = partial + choice * a.sums * kPairRows + i % kPairRows;
    float sum = sums[0];
    for (int s = 1; s < a.sums; ++s) sum += sums[s * kPairRows];
    const int64_t pair = first_pair + choice, expert = a.experts[pair];
    outputs[i] =
        a.out.weights[pair] *
        finish<kScales>(sum, row, scales_of(a.x_scales, pair, a.w, expert), a.w.bias_of(expert));
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x), row = first + i;
  if (i >= kPairRows || row >= end) return;
  float sum = 0;
  for (int choice = 0; choice < a.top_k; ++choice) sum += outputs[choice * kPairRows + i];
  a.out.store(token, row, sum);
}

}  // namespace

bool experts_few_round(Tensor x) {
  const int64_t cols = ceil_div(x.cols, kMmaCols) * kMmaCols;
  return cols * 2 <= kStagedBytes && x.stride % 4 == 0 && x.cols % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void experts_few_up(const ExpertInput& x, const ExpertWeights& w, int64_t top_k,
                    const ExpertChoices& choices, int64_t rows, const ExpertInner& inner,
                    Stream stream) {
  const bool staged = x.unrounded.data != nullptr;
  const int64_t cols = w.up.first.cols;
  check(staged || x.rounded.cell == cell_cols(w.up.first.format.dtype),
        "x in the order of fragments");
  check(w.second % kPanelRows == 0, "whole panels");
  UpArgs a{};
  a.w = planes_of(w.up);
  a.experts = choices.experts;
  a.top_k = static_cast<int>(top_k);
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
  a.inner_cell = static_cast<int>(inner.rounded.cell);
  if (inner.unrounded.data != nullptr) {
    a.inner = nullptr;
    a.inner_cols = static_cast<int>(w.width);
    a.unrounded_inner = inner.unrounded.row<float>(0);
    a.inner_stride = inner.unrounded.stride;
  }
  const auto warps = static_cast<uint32_t>(accumulators(w.up.first));
  a.tiles = static_cast<int>(ceil_div(a.inner_cols, w.second > 0 ? kPanel : kPairRows));
  a.all_tiles = static_cast<int>(rows * top_k) * a.tiles;
  const uint32_t x_bytes = staged ? static_cast<uint32_t>(a.x_cols) * 2 : 0;
  const Launch at{{static_cast<uint32_t>(std::min<int64_t>(a.all_tiles, 2 * kProcessors))},
                  {warps * 32},
                  2 * warps * kPairRows * 4 + x_bytes};
  with_expert_format(w.up.first.format, [&](auto codes, auto scales) {
    staged ? launch_early(experts_up_kernel<codes(), scales(), true>, at, stream, a)
           : launch_early(experts_up_kernel<codes(), scales(), false>, at, stream, a);
  });
}

void experts_few_down(const Bf16Rows& inner, const ExpertWeights& w, int64_t top_k,
                      const ExpertChoices& choices, const SharedExpert& shared, Tensor y,
                      Stream stream) {
  check(inner.cols % kMmaCols == 0 && y.cols == w.down.first.rows &&
            inner.cell == cell_cols(w.down.first.format.dtype),
        "rows that fragments fit");
  DownArgs a{};
  a.w = planes_of(w.down);
  a.experts = choices.experts;
  a.top_k = static_cast<int>(top_k);
  a.sums = accumulators(w.down.first);
  a.x = inner.data;
  a.x_cols = static_cast<int>(inner.cols);
  a.x_scales = inner.scales;
  a.out = expert_outputs(choices.weights, shared, y);
  const int64_t panels = y.cols / kPanelRows * y.rows;
  a.panels = panels > kProcessors ? 2 : 1;
  const int units = a.top_k * a.sums;
  // One block a multiprocessor needs all warps to keep memory busy; of more, two have room.
  const int64_t tiles = ceil_div(y.cols, a.panels * kPanelRows), blocks = tiles * y.rows;
  const uint32_t most = blocks <= kProcessors ? kDownWarps : kDownWarps / 2;
  const uint32_t warps = block_threads(int64_t{units} * 32, most * 32) / 32;
  const Launch at{{static_cast<uint32_t>(tiles), static_cast<uint32_t>(y.rows)},
                  {warps * 32},
                  static_cast<uint32_t>((units + a.top_k) * kPairRows * 4)};
  with_expert_format(w.down.first.format, [&](auto codes, auto scales) {
    launch_early(experts_down_kernel<codes(), scales()>, at, stream, a);
  });
}

}  // namespace sluice::cuda
