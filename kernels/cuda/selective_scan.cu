#include "kernels/cuda/states.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kChannels = 32;  // of a block: a lane each

struct SelectiveArgs {
  const float* queries;
  const float* keys;
  const float* values;
  const float* steps;
  float* out;
  int64_t query_stride, key_stride, value_stride, step_stride, out_stride;
  int64_t rows, channels;
  const float* log_rates;
  const float* skip;
  int key_dim;
  StateCache state;
  StateChunks chunks;
};

__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// x: the chunk, y: its channels. Token by token; a lane's rates and its state are in shared memory
// meanwhile, each as [key_dim][kChannels]. A token's inputs are fetched while the token before is
// computed.
__global__ void __launch_bounds__(kChannels) selective_scan_kernel(SelectiveArgs a) {
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk)) return;
  const int64_t channel = int64_t{blockIdx.y} * kChannels + threadIdx.x;
  if (channel >= a.channels) return;
  float* rates = &shared_memory<float>() + threadIdx.x;
  float* state = rates + a.key_dim * kChannels;
  for (int k = 0; k < a.key_dim; ++k) {
    rates[k * kChannels] = -expf(a.log_rates[channel * a.key_dim + k]);
    state[k * kChannels] = chunk.fresh ? 0.0f : state_row(a.state, chunk, k)[channel];
  }
  const float skip = a.skip[channel];
  float next_step = a.steps[chunk.row * a.step_stride + channel];
  float next_value = a.values[chunk.row * a.value_stride + channel];
  for (int64_t r = chunk.row; r < chunk.row + chunk.rows; ++r) {
    const float* keys = a.keys + r * a.key_stride;
    const float* queries = a.queries + r * a.query_stride;
    const float step = softplus(next_step), value = next_value;
    if (r + 1 < chunk.row + chunk.rows) {
      next_step = a.steps[(r + 1) * a.step_stride + channel];
      next_value = a.values[(r + 1) * a.value_stride + channel];
    }
    const float change = step * value;
    float sum = 0;
    for (int k = 0; k < a.key_dim; ++k) {
      float& s = state[k * kChannels];
      s = fmaf(change, keys[k], expf(rates[k * kChannels] * step) * s);
      sum = fmaf(s, queries[k], sum);
    }
    a.out[r * a.out_stride + channel] = fmaf(skip, value, sum);
  }
  for (int k = 0; k < a.key_dim; ++k) state_row(a.state, chunk, k)[channel] = state[k * kChannels];
}

}  // namespace

void selective_scan(const SelectiveInputs& in, const SelectiveParams& params,
                    const StateRows& state, const StateChunks& chunks, Tensor out, Stream stream) {
  check_selective_scan(in, params, state, out);
  if (out.rows == 0 || out.cols == 0) return;
  const SelectiveArgs args{in.queries.row<float>(0),
                           in.keys.row<float>(0),
                           in.values.row<float>(0),
                           in.steps.row<float>(0),
                           out.row<float>(0),
                           in.queries.stride,
                           in.keys.stride,
                           in.values.stride,
                           in.steps.stride,
                           out.stride,
                           out.rows,
                           out.cols,
                           params.log_rates,
                           params.skip,
                           static_cast<int>(in.keys.cols),
                           state.cache,
                           chunks};
  const Launch at{{static_cast<uint32_t>(chunks.chunks != nullptr ? chunks.count : out.rows),
                   static_cast<uint32_t>((out.cols + kChannels - 1) / kChannels)},
                  {kChannels},
                  static_cast<uint32_t>(2 * in.keys.cols * kChannels * sizeof(float))};
  launch(selective_scan_kernel, at, stream, args);
}

}  // namespace sluice::cuda
