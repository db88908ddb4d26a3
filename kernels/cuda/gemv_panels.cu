// A few rows of x times a weight in panels, by tensor cores: the weight, which is all that counts,
// is read once whatever the number of tokens, and multiplying it costs the same for 1 and 8
// (panels.cuh).
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/panels.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kStagedTokens = 2;             // whose x blocks round themselves,
constexpr int64_t kStagedBytes = 32 * 1024;  // where they have room for it

struct PanelsArgs {
  const std::byte* weight;
  int64_t panel_bytes;
  int cells;  // of a panel
  const float* scales;
  const float* bias;
  const std::byte* x;      // bf16, or codes of i8, in the order of fragments
  const float* unrounded;  // kStage: in the place of x
  int64_t x_stride;
  RmsArgs norm;  // of the same
  InputScales x_scales;
  float* y;
  int64_t y_stride;
  int rows, cols, x_cols, tokens;
  Gating gating;
  int width, second;  // as of Fusion
  bool adds;
  int panels, tiles;  // of a tile, which is what a block has at a time: 2, or 1 of few rows
};

// The first row of a tile's panel: of neighbours, or of a gate's and that of its factor.
__device__ inline int first_row(const PanelsArgs& a, int tile, int panel) {
  const int rows = static_cast<int>(kPanelRows);
  if (a.width > 0) return tile * rows + (panel > 0 ? a.second : 0);
  return (tile * a.panels + panel) * rows;
}
__device__ inline bool is_there(const PanelsArgs& a, int tile, int panel) {
  if (tile >= a.tiles || panel >= a.panels) return false;
  return a.width > 0 || first_row(a, tile, panel) < a.rows;
}

// The step that a warp loads next.
struct Ahead {
  int tile, part;
};
__device__ inline Granules load_ahead(const PanelsArgs& a, int parts, Ahead& at) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int panel = static_cast<int>(threadIdx.x) % 32 / 16;
  const bool there = is_there(a, at.tile, panel);
  const int64_t first = there ? first_row(a, at.tile, panel) / kPanelRows : 0;
  const PanelLane lane = panel_lane(a.weight + first * a.panel_bytes, there);
  const Granules w = load_granules(lane, (at.part * warps + warp) * kStepCells, a.cells);
  if (++at.part == parts) {
    at.part = 0;
    at.tile += static_cast<int>(gridDim.x);
  }
  return w;
}

// A sum of the tile, scaled.
__device__ inline float finished(const PanelsArgs& a, int row, int token, float sum,
                                 bool row_scales) {
  if (a.x_scales.at != nullptr && a.x_scales.block_step == 0)
    sum *= a.x_scales.at[token * a.x_scales.row_step];
  if (row_scales) sum *= a.scales[row];
  return a.bias == nullptr ? sum : sum + a.bias[row];
}

// Scale of a token's codes in one block of columns; 1 where x has no scales, or one a row.
__device__ inline float x_scale(const PanelsArgs& a, int token, int block) {
  if (a.x_scales.block_step == 0 || token >= a.tokens) return 1;
  return a.x_scales.at[token * a.x_scales.row_step + block * a.x_scales.block_step];
}

// total += a step's products; a panel has one scale for its columns.
template <DType kCodes, int kTiles>
__device__ void multiply_block(const PanelsArgs& a, const Granules& w, const uint16_t* x, int tile,
                               int step, PanelSums<float, kTiles>& total) {
  PanelSums<float, kTiles> sums{};
  multiply_granules<kCodes>(w, x, a.x_cols, a.tokens, sums);
  const int panel = static_cast<int>(threadIdx.x) % 32 / 16;
  const int t = static_cast<int>(threadIdx.x) % 4;
  if (!is_there(a, tile, panel)) return;
  const int blocks = (a.cols + kStepCols<kCodes> - 1) / kStepCols<kCodes>;
  const int64_t first = first_row(a, tile, panel) / static_cast<int>(kPanelRows);
  const float scale = a.scales[first * blocks + step];
#pragma unroll
  for (int tokens = 0; tokens < kTiles; ++tokens) {
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = tokens * static_cast<int>(kMmaTokens) + 2 * t + i % 2;
        total.at[tokens][f][i] += sums.at[tokens][f][i] * x_scale(a, token, step) * scale;
      }
    }
  }
}

// Leaves a warp's sums for finish_tile: [warp][token][kPairRows].
template <class T, int kTiles>
__device__ void leave_sums(const PanelsArgs& a, const PanelSums<T, kTiles>& total, T* partial) {
  const int warp = static_cast<int>(threadIdx.x) / 32, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      const int token = tile * static_cast<int>(kMmaTokens) + 2 * t + which;
      if (token < a.tokens)
        store_as(partial + (warp * a.tokens + token) * kPairRows + lane_rows(),
                 rows_of_token(total.at[tile], which));
    }
  }
}

// Adds the warps' sums in order, and stores what is made of them.
template <class T>
__device__ void finish_tile(const PanelsArgs& a, int tile, const T* partial, bool row_scales) {
  const int warps = static_cast<int>(blockDim.x) / 32, all = a.tokens * kPairRows;
  const int end = a.width > 0 ? a.width : a.rows;
  auto sum_of = [&](int token, int panel, int r) {
    const int at = token * kPairRows + panel * static_cast<int>(kPanelRows) + r;
    T sum = partial[at];
    for (int w = 1; w < warps; ++w) sum += partial[w * all + at];
    return finished(a, first_row(a, tile, panel) + r, token, static_cast<float>(sum), row_scales);
  };
  const int of_token = static_cast<int>(kPanelRows) * (a.width > 0 ? 1 : a.panels);
  for (int i = static_cast<int>(threadIdx.x); i < a.tokens * of_token;
       i += static_cast<int>(blockDim.x)) {
    const int token = i / of_token, panel = i % of_token / static_cast<int>(kPanelRows);
    const int r = i % static_cast<int>(kPanelRows), row = first_row(a, tile, panel) + r;
    if (row >= end) continue;
    float value = sum_of(token, panel, r);
    if (a.width > 0) value = gated_value(a.gating, value, sum_of(token, 1, r), true);
    float* to = a.y + token * a.y_stride + row;
    *to = a.adds ? *to + value : value;
  }
}

// Rows of x, as a block multiplies them: normed, where that is asked for, and rounded to bf16.
template <DType kCodes>
__device__ void stage_rows(const PanelsArgs& a, float* partial, uint16_t* staged) {
  for (int token = 0; token < a.tokens; ++token) {
    const float* from = a.unrounded + token * a.x_stride;
    uint16_t* to = staged + token * a.x_cols;
    if (a.norm.warps == 0) {
      stage_row<kCellCols<kCodes>>(from, a.cols, to, a.x_cols);
      continue;
    }
    const float scale = rms_scale(a.norm, from, a.cols, partial + token * kNormMostWarps);
    stage_row<kCellCols<kCodes>>(from, a.cols, to, a.x_cols,
                                 [&](int c, auto& v) { rms_columns(a.norm, c, scale, v); });
  }
  __syncthreads();
}

// Blocks take tiles in turn; a block's warps take steps of each in turn, the next of which is on
// its way while one is multiplied, over the ends of tiles. kStage: blocks round x themselves.
template <DType kCodes, ScaleKind kScales, int kTiles, bool kStage, class Element>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 1 ? 2 : 1)
    gemv_panels_kernel(PanelsArgs a) {
  using Sum = std::conditional_t<std::is_same_v<Element, int8_t>, int, float>;
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int steps = (a.cells + kStepCells - 1) / kStepCells, parts = (steps + warps - 1) / warps;
  Ahead ahead{static_cast<int>(blockIdx.x), 0};
  Granules w = load_ahead(a, parts, ahead);
  wait_for_earlier();
  auto* memory = &shared_memory<Sum>();  // [2][warps][tokens][kPairRows], in turn; then x
  Sum* partial = memory;
  const auto* x = reinterpret_cast<const Element*>(a.x);
  if constexpr (kStage) {
    auto* staged = reinterpret_cast<uint16_t*>(memory + 2 * warps * a.tokens * kPairRows);
    stage_rows<kCodes>(a, memory, staged);
    x = staged;
  }
  x += static_cast<int>(threadIdx.x) % 4 * kStepLoads * kCellCols<kCodes>;
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles;
       tile += static_cast<int>(gridDim.x)) {
    PanelSums<Sum, kTiles> total{};
    for (int part = 0; part < parts; ++part) {
      const Granules next = load_ahead(a, parts, ahead);
      const int step = part * warps + warp;
      if (step < steps) {  // of all lanes
        const Element* here = x + int64_t{step} * kStepCols<kCodes>;
        if constexpr (kScales == ScaleKind::per_block) {
          multiply_block<kCodes>(a, w, here, tile, step, total);
        } else if constexpr (std::is_same_v<Element, int8_t>) {
          multiply_granules(w, here, a.x_cols, a.tokens, total);
        } else {
          multiply_granules<kCodes>(w, here, a.x_cols, a.tokens, total);
        }
      }
      w = next;
    }
    leave_sums(a, total, partial);
    __syncthreads();
    finish_tile(a, tile, partial, kScales == ScaleKind::per_row);
    partial = partial == memory ? memory + warps * a.tokens * kPairRows : memory;
  }
}

template <DType kCodes, ScaleKind kScales, class Element>
void launch_panels(PanelsArgs args, Stream stream) {
  const uint32_t warps = block_threads(ceil_div(args.cells, kStepCells) * 32, kMostWarps * 32) / 32;
  const int64_t panels = ceil_div(args.rows, kPanelRows);
  args.panels = args.width > 0 || panels > kProcessors ? 2 : 1;
  args.tiles = static_cast<int>(args.width > 0 ? ceil_div(args.width, kPanelRows)
                                               : ceil_div(panels, args.panels));
  const bool few = args.tokens <= kMmaTokens;
  const auto staged =
      args.x == nullptr ? static_cast<uint32_t>(args.tokens * args.x_cols) * 2 : uint32_t{0};
  const uint32_t sums = 2 * warps * static_cast<uint32_t>(args.tokens * kPairRows) * 4;
  const Launch at{
      {static_cast<uint32_t>(std::min<int64_t>(args.tiles, (few ? 2 : 1) * kProcessors))},
      {warps * 32},
      sums + staged};
  if constexpr (std::is_same_v<Element, uint16_t>) {
    if (staged > 0)
      return launch_early(gemv_panels_kernel<kCodes, kScales, 1, true, Element>, at, stream, args);
  }
  few ? launch_early(gemv_panels_kernel<kCodes, kScales, 1, false, Element>, at, stream, args)
      : launch_early(gemv_panels_kernel<kCodes, kScales, 2, false, Element>, at, stream, args);
}

PanelsArgs args_of(const Weight& w, const float* bias, const Fusion& fusion, const Tensor& y) {
  PanelsArgs args{};
  args.gating = {fusion.activation.kind, fusion.activation.limit, fusion.activation.alpha, 1};
  args.width = static_cast<int>(fusion.width);
  args.second = static_cast<int>(fusion.second);
  args.adds = fusion.adds;
  args.weight = w.data;
  args.panel_bytes = panel_bytes(w.format.dtype, w.cols);
  args.cells = static_cast<int>(args.panel_bytes / kCellBytes);
  args.scales = w.scales;
  args.bias = bias;
  args.y = y.row<float>(0);
  args.y_stride = y.stride;
  args.rows = static_cast<int>(w.rows);
  args.cols = static_cast<int>(w.cols);
  args.tokens = static_cast<int>(y.rows);
  return args;
}

// Launches the kernel for the weight's codes.
void launch_any(const PanelsArgs& args, const WeightFormat& format, Stream stream) {
  if (format.dtype == DType::bf16)
    return launch_panels<DType::bf16, ScaleKind::none, uint16_t>(args, stream);
  if (format.scales == ScaleKind::per_row)
    return launch_panels<DType::f8_e4m3, ScaleKind::per_row, uint16_t>(args, stream);
  check(format.scales == ScaleKind::per_block, "f8_e4m3 codes have scales");
  launch_panels<DType::f8_e4m3, ScaleKind::per_block, uint16_t>(args, stream);
}

void check_weight(const Weight& w, const Fusion& fusion) {
  check(w.format.layout == WeightLayout::packed && w.rows % kPanelRows == 0 &&
            reinterpret_cast<uintptr_t>(w.data) % kLaneBytes == 0 &&
            fusion.second % kPanelRows == 0 &&
            fusion.second + ceil_div(fusion.width, kPanelRows) * kPanelRows <= w.rows,
        "whole panels");
}

}  // namespace

static_assert(kStepCols<DType::f8_e4m3> == kScaleBlock, "a step of E4M3 has one scale");

bool gemv_panels_rounds(int64_t rows, int64_t cols) {
  return rows <= kStagedTokens && rows * ceil_div(cols, kMmaCols) * kMmaCols * 2 <= kStagedBytes;
}

bool gemv_panels_norms(const InputNorm& norm, const Weight& w, int64_t rows) {
  return gemv_panels_rounds(rows, w.cols) && rms_fits(norm, w.cols);
}

void gemv_panels(Tensor x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream) {
  check_weight(w, fusion);
  check(gemv_panels_rounds(x.rows, x.cols) && x.cols == w.cols && x.rows == y.rows,
        "rows that a block stages");
  PanelsArgs args = args_of(w, bias, fusion, y);
  args.unrounded = x.row<float>(0);
  args.x_stride = x.stride;
  if (fusion.norm) args.norm = rms_args(*fusion.norm);
  args.x_cols = static_cast<int>(ceil_div(x.cols, kMmaCols) * kMmaCols);
  launch_any(args, w.format, stream);
}

void gemv_panels(Bf16Rows x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream) {
  check_weight(w, fusion);
  check(x.cell == cell_cols(w.format.dtype) && x.cols % kMmaCols == 0 && x.cols >= w.cols &&
            y.rows <= x.rows && x.rows <= 2 * kMmaTokens,
        "rows that fragments fit");
  PanelsArgs args = args_of(w, bias, fusion, y);
  args.x = reinterpret_cast<const std::byte*>(x.data);
  args.x_scales = x.scales;
  args.x_cols = static_cast<int>(x.cols);
  launch_any(args, w.format, stream);
}

void gemv_panels(I8Rows x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream) {
  check_weight(w, fusion);
  check(w.format.dtype == DType::i8 && w.format.scales == ScaleKind::per_row &&
            x.cell == cell_cols(DType::i8) && x.cols % kMmaCols == 0 && x.cols >= w.cols &&
            w.cols <= kMostI8Cols && y.rows <= 2 * kMmaTokens,
        "a few rows times i8 codes");
  PanelsArgs args = args_of(w, bias, fusion, y);
  args.x = reinterpret_cast<const std::byte*>(x.data);
  args.x_scales = {x.scales};
  args.x_cols = static_cast<int>(x.cols);
  launch_panels<DType::i8, ScaleKind::per_row, int8_t>(args, stream);
}

}  // namespace sluice::cuda
