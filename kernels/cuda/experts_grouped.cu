// Experts of a few rows, of weights of 4-bit codes in groups: as experts_few.cu has them, with the
// sums of gemv_grouped, in its order.
#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_matrix.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/grouped_fragments.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kCols = static_cast<int>(kMmaCols), kRows = static_cast<int>(kMmaRows);
constexpr int kTokenRows = static_cast<int>(kMmaTokens) * kRows;  // of a warp's sums

// The planes of all experts.
struct Stack {
  GroupedPlanes first;
  int64_t step;  // bytes
  const float* bias;
  int64_t bias_step;

  __device__ GroupedPlanes of(int64_t expert) const {
    GroupedPlanes w = first;
    w.codes = moved(w.codes, expert * step);
    w.scales += expert * step;
    if (w.zeros != nullptr) w.zeros += expert * step;
    return w;
  }
  __device__ const float* bias_of(int64_t expert) const {
    return bias == nullptr ? nullptr : moved(bias, expert * bias_step);
  }
  template <class T>
  __device__ static const T* moved(const T* at, int64_t bytes) {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(at) + bytes);
  }
};

Stack stack_of(const ExpertMatrix& m) {
  return {grouped_planes(m.first), m.step, m.bias, m.bias_step};
}

// Leaves the warps' sums of 16 rows of an expert times one token, for sum_of(); `rows`: this lane's
// two, or those behind the last one for zeros.
template <bool kOneGroup, bool kE2M1>
__device__ void multiply_rows(const GroupedPlanes& w, const uint16_t* x, const int (&rows)[2],
                              float* partial) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int t = static_cast<int>(threadIdx.x) % 4, step = warps * kCols;
  Part<4, kOneGroup> parts[2], next[2];
  int col = warp * kCols;
#pragma unroll
  for (int half = 0; half < 2; ++half) load_part(w, rows[half], col, t, parts[half]);
  float total[1][4] = {};
  for (; col < w.cols; col += step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_part(w, rows[half], col + step, t, next[half]);
    multiply_parts<4, kOneGroup, kE2M1, 1>(w, {x, 0, 1}, parts, col, total);
    parts[0] = next[0];
    parts[1] = next[1];
  }
  leave_partial<1>(total, partial);
}
__device__ inline float sum_of(const float* partial, int row) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  float sum = partial[row];
  for (int w = 1; w < warps; ++w) sum += partial[w * kTokenRows + row];
  return sum;
}

struct GroupedUpArgs {
  Stack w;
  const int32_t* experts;
  int top_k;
  const uint16_t* x;
  int x_cols;
  Gating gating;
  int width, second;
  uint16_t* inner;
  int inner_cols;
};

// x: 16 rows of the weight, which are eight of a gate and those of its factor, or 16 columns by
// themselves; y: pairs.
template <bool kOneGroup, bool kE2M1>
__global__ void __launch_bounds__(kMostWarps * 32, 2) grouped_up_kernel(GroupedUpArgs a) {
  wait_for_earlier();
  const bool gated = a.second > 0;
  const int lane = static_cast<int>(threadIdx.x), outputs = gated ? 8 : kRows;
  const int first = static_cast<int>(blockIdx.x) * outputs, g = lane % 32 / 4;
  const int64_t pair = blockIdx.y, expert = a.experts[pair];
  const GroupedPlanes w = a.w.of(expert);
  const int upper = first + g, lower = gated ? a.second + upper : upper + 8;
  const bool there = upper < a.width, lower_there = gated ? there : lower < a.width;
  const int rows[2] = {there ? upper : w.rows, lower_there ? lower : w.rows};
  float* partial = &shared_memory<float>();
  multiply_rows<kOneGroup, kE2M1>(w, a.x + pair / a.top_k * a.x_cols, rows, partial);
  __syncthreads();
  const int c = first + lane;
  if (lane >= outputs || c >= a.inner_cols) return;
  float value = 0;
  if (c < a.width) {
    const float* bias = a.w.bias_of(expert);
    auto sum = [&](int row, int of_weight) {
      const float all = sum_of(partial, row);
      return bias == nullptr ? all : all + bias[of_weight];
    };
    value = gated_value(a.gating, sum(lane, c), gated ? sum(lane + 8, a.second + c) : 1, gated);
  }
  a.inner[pair * a.inner_cols + c] = float_to_bf16(value);
}

struct GroupedDownArgs {
  Stack w;
  const int32_t* experts;
  int top_k;
  const uint16_t* x;
  int x_cols;
  ExpertOutputs out;
};

// x: 16 outputs; y: rows, each with its experts in turn.
template <bool kOneGroup, bool kE2M1>
__global__ void __launch_bounds__(kMostWarps * 32, 2) grouped_down_kernel(GroupedDownArgs a) {
  wait_for_earlier();
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x);
  const int64_t token = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x) * kRows, g = lane % 32 / 4, output = first + lane;
  const int rows[2] = {first + g, first + g + 8};  // behind the last one there are zeros
  float *memory = &shared_memory<float>(), *partial = memory, sum = 0;  // [2][warps], in turn
  for (int choice = 0; choice < a.top_k; ++choice) {
    const int64_t pair = token * a.top_k + choice, expert = a.experts[pair];
    multiply_rows<kOneGroup, kE2M1>(a.w.of(expert), a.x + pair * a.x_cols, rows, partial);
    __syncthreads();
    if (lane < kRows && output < a.w.first.rows) {
      const float* bias = a.w.bias_of(expert);
      const float own = sum_of(partial, lane);
      sum += a.out.weights[pair] * (bias == nullptr ? own : own + bias[output]);
    }
    partial = partial == memory ? memory + warps * kTokenRows : memory;
  }
  if (lane >= kRows || output >= a.w.first.rows) return;
  a.out.store(token, output, sum);
}

uint32_t warps_of(int64_t cols) {  // as gemv_grouped
  return block_threads(ceil_div(cols, kMmaCols) * 32, kMostWarps * 32) / 32;
}

// body(kOneGroup, kE2M1), as gemv_grouped chooses them.
template <class Body>
void with_groups(const Weight& w, Body&& body) {
  const GroupedPlanes planes = grouped_planes(w);
  if (w.format.table == CodeTable::e2m1) {
    body(Constant<false>{}, Constant<true>{});
  } else if (planes.group_cols % kMmaCols == 0 || planes.groups == 1) {
    body(Constant<true>{}, Constant<false>{});
  } else {
    body(Constant<false>{}, Constant<false>{});
  }
}

}  // namespace

void experts_grouped_up(const Bf16Rows& x, const ExpertWeights& w, int64_t top_k,
                        const ExpertChoices& choices, const Bf16Rows& inner, Stream stream) {
  check(x.cols % kMmaCols == 0 && x.cols >= w.up.first.cols, "rows of x that fragments fit");
  const GroupedUpArgs a{stack_of(w.up),
                        choices.experts,
                        static_cast<int>(top_k),
                        x.data,
                        static_cast<int>(x.cols),
                        gating_of(w),
                        static_cast<int>(w.width),
                        static_cast<int>(w.second),
                        inner.data,
                        static_cast<int>(inner.cols)};
  const int64_t tiles = ceil_div(inner.cols, w.second > 0 ? 8 : kRows);
  const uint32_t warps = warps_of(w.up.first.cols);
  const Launch at{{static_cast<uint32_t>(tiles), static_cast<uint32_t>(x.rows * top_k)},
                  {warps * 32},
                  warps * kTokenRows * 4};
  with_groups(w.up.first, [&](auto one_group, auto e2m1) {
    launch_early(grouped_up_kernel<one_group(), e2m1()>, at, stream, a);
  });
}

void experts_grouped_down(const Bf16Rows& inner, const ExpertWeights& w, int64_t top_k,
                          const ExpertChoices& choices, const SharedExpert& shared, Tensor y,
                          Stream stream) {
  check(inner.cols % kMmaCols == 0 && y.cols == w.down.first.rows, "rows that fragments fit");
  GroupedDownArgs a{};
  a.w = stack_of(w.down);
  a.experts = choices.experts;
  a.top_k = static_cast<int>(top_k);
  a.x = inner.data;
  a.x_cols = static_cast<int>(inner.cols);
  a.out = expert_outputs(choices.weights, shared, y);
  const uint32_t warps = warps_of(w.down.first.cols);
  const Launch at{
      {static_cast<uint32_t>(ceil_div(y.cols, kMmaRows)), static_cast<uint32_t>(y.rows)},
      {warps * 32},
      2 * warps * kTokenRows * 4};
  with_groups(w.down.first, [&](auto one_group, auto e2m1) {
    launch_early(grouped_down_kernel<one_group(), e2m1()>, at, stream, a);
  });
}

}  // namespace sluice::cuda
