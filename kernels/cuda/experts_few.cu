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
  Activation activation;
  float gate_multiplier;
  int width, second;
  uint16_t* inner;
  int inner_cols;
  float* unrounded_inner;  // in the place of `inner`
  int64_t inner_stride;
};

// Stores activated columns: of a gate and its factor, rows g and g + 8 of the fragments, or each
// row by itself. `sum` is finished, in lanes of the fragments' rows.
__device__ inline void store_inner(const UpArgs& a, int64_t pair, float sum) {
  const int lane = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x);
  const float factor = __shfl_down_sync(kAllLanes, sum, 8);
  const int outputs = a.second > 0 ? 8 : kRows;
  const int c = first * outputs + lane;
  if (lane >= outputs || c >= a.inner_cols) return;
  float value = 0;
  if (c < a.width) {
    value = activated(a.activation, a.gate_multiplier == 1 ? sum : sum * a.gate_multiplier);
    if (a.second > 0) value *= factor;
  }
  if (a.inner != nullptr) {
    a.inner[pair * a.inner_cols + c] = float_to_bf16(value);
  } else {
    a.unrounded_inner[pair * a.inner_stride + c] = value;
  }
}

// A block takes 16 rows of the weight for one pair: eight of a gate, and those of its factor. The
// first columns are on their way while x is rounded.
template <DType kCodes, ScaleKind kScales, bool kStage>
__global__ void __launch_bounds__(kUpWarps * 32, 2) experts_up_kernel(UpArgs a) {
  wait_for_earlier();
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int64_t pair = blockIdx.y, expert = a.experts[pair], token = pair / a.used;
  const int outputs = a.second > 0 ? 8 : kRows, first = static_cast<int>(blockIdx.x) * outputs;
  const bool there = first + g < a.width;
  const LaneRows rows =
      a.second > 0 ? LaneRows{{first + g, a.second + first + g}, {there, there}}
                   : LaneRows{{first + g, first + g + 8}, {there, first + g + 8 < a.width}};
  const std::byte* codes = a.w.codes_of(expert);
  const Scales scales = scales_of(a.x_scales, token, a.w, expert);
  const int step = warps * kCols;
  int mine = warp * kCols + t * Slice<kCodes>::kElements;
  Slice<kCodes> slice = load_slice<kCodes>(codes, a.w.cols, rows, mine);
  Slice<kCodes> next = load_slice<kCodes>(codes, a.w.cols, rows, mine + step);
  const uint16_t* x = a.x + token * a.x_cols;
  if constexpr (kStage) {
    auto* staged = &shared_memory<uint16_t>();
    stage_row(a.unrounded + token * a.x_stride, a.w.cols, staged, a.x_cols);
    __syncthreads();
    x = staged;
  }
  float total[4] = {};
  const int end = a.w.cols + t * Slice<kCodes>::kElements;
  while (mine < end) {
    multiply_slice<kCodes, kScales>(slice, x, mine, rows, scales, total);
    mine += step;
    slice = next;
    next = load_slice<kCodes>(codes, a.w.cols, rows, mine + step);
  }
  if constexpr (kStage) __syncthreads();  // its memory is used again
  float* partial = &shared_memory<float>();
  if (t == 0) {
    partial[warp * kRows + g] = total[0];
    partial[warp * kRows + g + 8] = total[2];
  }
  __syncthreads();
  if (warp != 0) return;
  float sum = 0;
  if (lane < kRows) {
    sum = partial[lane];
    for (int w = 1; w < warps; ++w) sum += partial[w * kRows + lane];
    const int half = lane / 8, row = half == 0      ? first + lane
                                     : a.second > 0 ? a.second + first + lane - 8
                                                    : first + lane;
    const bool has = a.second > 0 ? first + lane % 8 < a.width : first + lane < a.width;
    sum = has ? finish<kScales>(sum, row, scales, a.w.bias_of(expert)) : 0;
  }
  store_inner(a, pair, sum);
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
  a.activation = w.activation;
  a.gate_multiplier = w.gate_multiplier;
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
  const uint32_t sums = warps * kRows * 4,
                 x_bytes = staged ? static_cast<uint32_t>(a.x_cols) * 2 : 0;
  const Launch at{{static_cast<uint32_t>(ceil_div(a.inner_cols, w.second > 0 ? 8 : kRows)),
                   static_cast<uint32_t>(rows * used)},
                  {warps * 32},
                  std::max(sums, x_bytes)};
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
  if (shared.out.data != nullptr) {
    a.shared = shared.out.row<float>(0);
    a.shared_stride = shared.out.stride;
  }
  if (shared.weights.data != nullptr) {
    a.shared_weights = shared.weights.row<float>(0);
    a.shared_weights_stride = shared.weights.stride;
  }
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
