#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/states.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

struct DecayArgs {
  float* steps;
  float* decays;
  int64_t step_stride, decay_stride, cols;
  const float* log_rates;
  const float* bias;
  float least, most;
};

__global__ void __launch_bounds__(kElementwiseThreads) decay_kernel(DecayArgs a) {
  const int64_t h = elementwise_column(1);
  if (h >= a.cols) return;
  float* at = a.steps + blockIdx.x * a.step_stride + h;
  const float x = *at + a.bias[h];
  const float step = fminf(fmaxf(x > 30 ? x : log1pf(expf(x)), a.least), a.most);
  *at = step;
  a.decays[blockIdx.x * a.decay_stride + h] = expf(-expf(a.log_rates[h]) * step);
}

constexpr int kColumns = 32;  // of a block's part of a head: a lane each
constexpr int kWarps = 4;     // each has every kWarps-th row of the state

struct ScanArgs {
  const float* queries;
  const float* keys;
  const float* values;
  const float* decays;
  const float* steps;
  float* out;
  int64_t query_stride, key_stride, value_stride, decay_stride, step_stride, out_stride;
  int64_t rows;
  const float* skip;
  int key_dim, value_dim;
  int served;  // heads of a key's head
  StateCache state;
  StateChunks chunks;
};

// Sums of the warps, in order.
__device__ inline float sum_of_warps(const float* parts) {
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += parts[w * kColumns + threadIdx.x % kColumns];
  return sum;
}

// x: the chunk, y: the head, z: its columns. Token by token; the state is in shared memory
// meanwhile, as [key_dim][kColumns], behind two sums of each warp.
template <bool kDelta>
__global__ void __launch_bounds__(kColumns* kWarps) scan_kernel(ScanArgs a) {
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk)) return;
  float* known_parts = &shared_memory<float>();
  float* result_parts = known_parts + kWarps * kColumns;
  float* state = result_parts + kWarps * kColumns;
  const int lane = static_cast<int>(threadIdx.x) % kColumns;
  const int warp = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(blockIdx.z) * kColumns + lane;
  const int head = static_cast<int>(blockIdx.y);
  const bool own = column < a.value_dim;
  const int64_t first = int64_t{head} * a.key_dim, value = int64_t{head} * a.value_dim + column;
  const int64_t first_key = int64_t{head} / a.served * a.key_dim;
  for (int k = warp; k < a.key_dim; k += kWarps)
    state[k * kColumns + lane] =
        own && !chunk.fresh ? state_row(a.state, chunk, first + k)[column] : 0.0f;
  for (int64_t r = chunk.row; r < chunk.row + chunk.rows; ++r) {
    const float* keys = a.keys + r * a.key_stride + first_key;
    const float* queries = a.queries + r * a.query_stride + first_key;
    const float decay = a.decays[r * a.decay_stride + head];
    const float v = own ? a.values[r * a.value_stride + value] : 0.0f;
    float sum = 0;
    for (int k = warp; kDelta && k < a.key_dim; k += kWarps)
      sum = fmaf(state[k * kColumns + lane], keys[k], sum);
    known_parts[threadIdx.x] = sum;
    __syncthreads();
    const float known = kDelta ? decay * sum_of_warps(known_parts) : 0.0f;
    const float change = a.steps[r * a.step_stride + head] * (v - known);
    sum = 0;
    for (int k = warp; k < a.key_dim; k += kWarps) {
      float& s = state[k * kColumns + lane];
      s = fmaf(keys[k], change, decay * s);
      sum = fmaf(s, queries[k], sum);
    }
    result_parts[threadIdx.x] = sum;
    __syncthreads();
    if (warp == 0 && own) {
      const float skipped = a.skip != nullptr ? a.skip[head] * v : 0.0f;
      a.out[r * a.out_stride + value] = sum_of_warps(result_parts) + skipped;
    }
  }
  for (int k = warp; own && k < a.key_dim; k += kWarps)
    state_row(a.state, chunk, first + k)[column] = state[k * kColumns + lane];
}

}  // namespace

void decay(Tensor steps, const DecayParams& params, Tensor decays, Stream stream) {
  check_decay(steps, params, decays);
  if (steps.rows == 0 || steps.cols == 0) return;
  launch(decay_kernel, elementwise_launch(steps.rows, steps.cols, 1), stream,
         DecayArgs{steps.row<float>(0), decays.row<float>(0), steps.stride, decays.stride,
                   steps.cols, params.log_rates, params.bias, params.least, params.most});
}

void scan(const ScanInputs& in, const ScanParams& params, const StateRows& state,
          const StateChunks& chunks, Tensor out, Stream stream) {
  check_scan(in, params, state, out);
  if (out.rows == 0) return;
  const int64_t heads = in.steps.cols, d = params.key_dim, value_dim = state.cache.cols;
  const ScanArgs args{in.queries.row<float>(0),
                      in.keys.row<float>(0),
                      in.values.row<float>(0),
                      in.decays.row<float>(0),
                      in.steps.row<float>(0),
                      out.row<float>(0),
                      in.queries.stride,
                      in.keys.stride,
                      in.values.stride,
                      in.decays.stride,
                      in.steps.stride,
                      out.stride,
                      out.rows,
                      params.skip,
                      static_cast<int>(d),
                      static_cast<int>(value_dim),
                      static_cast<int>(heads / (in.keys.cols / d)),
                      state.cache,
                      chunks};
  const Launch at{
      {static_cast<uint32_t>(chunks.chunks != nullptr ? chunks.count : out.rows),
       static_cast<uint32_t>(heads), static_cast<uint32_t>((value_dim + kColumns - 1) / kColumns)},
      {kColumns * kWarps},
      static_cast<uint32_t>((2 * kWarps + d) * kColumns * sizeof(float))};
  params.delta ? launch(scan_kernel<true>, at, stream, args)
               : launch(scan_kernel<false>, at, stream, args);
}

}  // namespace sluice::cuda
