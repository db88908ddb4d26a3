#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/states.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kLanes = 4;  // of a channel: each has some of its keys
constexpr int kChannelThreads = 128;
constexpr int kChannels = kChannelThreads / kLanes;  // of a block

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
  bool negative_rates;
  int key_dim;
  StateCache state;
  StateChunks chunks;
};

__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// A token's inputs, as far as a thread needs them.
template <int kKeys>
struct SelectiveToken {
  float keys[kKeys];
  float queries[kKeys];
  float step, value;
};

// x: the chunk, y: its channels. Token by token; neighbours have the rates and the state of a
// channel in registers, kKeys each. A token's inputs are fetched while the token before is
// computed.
template <int kKeys, int kWidth>
__global__ void __launch_bounds__(kChannelThreads) selective_scan_kernel(SelectiveArgs a) {
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk)) return;
  const int thread = static_cast<int>(threadIdx.x), first = thread % kLanes * kKeys;
  const int64_t channel = int64_t{blockIdx.y} * kChannels + thread / kLanes;
  const int64_t end = chunk.row + chunk.rows;
  const bool own = channel < a.channels;
  float rates[kKeys] = {}, state[kKeys] = {};
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (!own || first + i >= a.key_dim) continue;
    const float rate = a.log_rates[channel * a.key_dim + first + i];
    rates[i] = a.negative_rates ? rate : -expf(rate);
    if (!chunk.fresh) state[i] = state_row(a.state, chunk, first + i)[channel];
  }
  auto load_keys = [&](const float* from, float(&to)[kKeys]) {
#pragma unroll
    for (int i = 0; i < kKeys; i += kWidth) {
      Vec<float, kWidth> part = {};
      if (first + i < a.key_dim) part = load_as<Vec<float, kWidth>>(from + first + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) to[i + j] = part.at[j];
    }
  };
  auto token_of = [&](int64_t r) {
    SelectiveToken<kKeys> token;
    load_keys(a.keys + r * a.key_stride, token.keys);
    load_keys(a.queries + r * a.query_stride, token.queries);
    token.step = own ? a.steps[r * a.step_stride + channel] : 0.0f;
    token.value = own ? a.values[r * a.value_stride + channel] : 0.0f;
    return token;
  };
  const float skip = own ? a.skip[channel] : 0.0f;
  SelectiveToken<kKeys> token = token_of(chunk.row);
  for (int64_t r = chunk.row; r < end; ++r) {
    SelectiveToken<kKeys> next = token;
    if (r + 1 < end) next = token_of(r + 1);
    const float step = softplus(token.step), change = step * token.value;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state[i] = fmaf(change, token.keys[i], expf(rates[i] * step) * state[i]);
      sum = fmaf(state[i], token.queries[i], sum);
    }
    sum = warp_reduce<kLanes>(sum, Plus{});
    if (own && thread % kLanes == 0)
      a.out[r * a.out_stride + channel] = fmaf(skip, token.value, sum);
    token = next;
  }
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (own && first + i < a.key_dim) state_row(a.state, chunk, first + i)[channel] = state[i];
  }
}

// Calls body(Constant<keys of a lane>).
template <class Body>
void with_keys_of_lane(int64_t key_dim, Body&& body) {
  static_assert(kMostSelectiveKeys == 32 * kLanes);
  if (key_dim <= 4 * kLanes) return body(Constant<4>{});
  if (key_dim <= 8 * kLanes) return body(Constant<8>{});
  if (key_dim <= 16 * kLanes) return body(Constant<16>{});
  body(Constant<32>{});
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
                           params.negative_rates,
                           static_cast<int>(in.keys.cols),
                           state.cache,
                           chunks};
  const Launch at{{static_cast<uint32_t>(chunks.chunks != nullptr ? chunks.count : out.rows),
                   static_cast<uint32_t>((out.cols + kChannels - 1) / kChannels)},
                  {kChannelThreads}};
  with_keys_of_lane(in.keys.cols, [&](auto keys) {
    with_width(
        [&](auto width) { launch(selective_scan_kernel<keys(), width()>, at, stream, args); },
        in.keys, in.queries);
  });
}

}  // namespace sluice::cuda
