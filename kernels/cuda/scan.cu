#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
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
  bool negative_rates;
  float least, most, floor;
  int64_t of_head;
};

__global__ void __launch_bounds__(kElementwiseThreads) decay_kernel(DecayArgs a) {
  const int64_t h = elementwise_column(1);
  if (h >= a.cols) return;
  float* at = a.steps + blockIdx.x * a.step_stride + h;
  const float x = *at + a.bias[h], stored = a.log_rates[h / a.of_head];
  const float rate = a.negative_rates ? -stored : expf(stored);
  const float step = a.floor < 0 ? 1 / (1 + expf(-rate * x))
                                 : fminf(fmaxf(x > 30 ? x : log1pf(expf(x)), a.least), a.most);
  *at = step;
  a.decays[blockIdx.x * a.decay_stride + h] = expf((a.floor < 0 ? a.floor : -rate) * step);
}

struct SlopeArgs {
  float* decays;
  int64_t stride, cols, first;
  float heads, factor;
};

__global__ void __launch_bounds__(kElementwiseThreads) slope_decays_kernel(SlopeArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.cols) return;
  const float slope = exp2f(-8 * static_cast<float>(a.first + c + 1) / a.heads);
  a.decays[blockIdx.x * a.stride + c] = expf(-a.factor * slope);
}

constexpr int kThreads = 256;

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
  int served;  // neighbours that a key's head serves; 0: every key_heads-th
  int key_heads;
  StateCache state;
  StateChunks chunks;
};

// All rows of a state decay alike, or each by itself, where a delta rule subtracts what it has for
// the key.
enum class Rule : uint8_t { plain, delta, delta_of_rows };

// A token's inputs, as far as a thread needs them.
template <int kKeys, Rule kRule>
struct TokenInputs {
  static constexpr bool kOfRows = kRule == Rule::delta_of_rows;
  float keys[kKeys];
  float queries[kKeys];
  float decays[kOfRows ? kKeys : 1];
  float value, step;
  __device__ float decay(int i) const { return decays[kOfRows ? i : 0]; }
};

// A thread's part of a head's keys: kKeys numbers, in vectors of kWidth which the neighbours that
// share a column take in turn.
template <int kLanes, int kKeys, int kWidth>
struct KeyPart {
  static constexpr int kVectors = kKeys / kWidth;
  __device__ static int first(int vector) {
    return (vector * kLanes + static_cast<int>(threadIdx.x) % kLanes) * kWidth;
  }
  __device__ static void load(const float* from, int key_dim, float (&to)[kKeys]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Vec<float, kWidth> part = {};
      if (first(v) < key_dim) part = load_as<Vec<float, kWidth>>(from + first(v));
#pragma unroll
      for (int i = 0; i < kWidth; ++i) to[v * kWidth + i] = part.at[i];
    }
  }
  // Calls body(place in the part, key) for what there is.
  template <class Body>
  __device__ static void each(int key_dim, Body&& body) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = first(i / kWidth) + i % kWidth;
      if (key < key_dim) body(i, key);
    }
  }
};

// x: the chunk, y: the head, z: its columns. Token by token, without barriers: kLanes neighbours
// have a column of the state in registers. A token's inputs are fetched while the token before is
// computed, where registers have room for both.
template <Rule kRule, int kLanes, int kKeys, int kWidth>
__global__ void __launch_bounds__(kThreads) scan_kernel(ScanArgs a) {
  using Part = KeyPart<kLanes, kKeys, kWidth>;
  using Inputs = TokenInputs<kKeys, kRule>;
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk)) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.z) * (kThreads / kLanes) + thread / kLanes;
  const int head = static_cast<int>(blockIdx.y);
  const bool own = column < a.value_dim;
  const int64_t first = int64_t{head} * a.key_dim, value = int64_t{head} * a.value_dim + column;
  const int key_head = a.served > 0 ? head / a.served : head % a.key_heads;
  const int64_t first_key = int64_t{key_head} * a.key_dim, end = chunk.row + chunk.rows;
  float state[kKeys] = {};
  if (own && !chunk.fresh)
    Part::each(a.key_dim,
               [&](int i, int key) { state[i] = state_row(a.state, chunk, first + key)[column]; });
  auto inputs_of = [&](int64_t r) {
    Inputs in;
    Part::load(a.keys + r * a.key_stride + first_key, a.key_dim, in.keys);
    Part::load(a.queries + r * a.query_stride + first_key, a.key_dim, in.queries);
    in.value = own ? a.values[r * a.value_stride + value] : 0.0f;
    if constexpr (Inputs::kOfRows) {
      Part::load(a.decays + r * a.decay_stride + first, a.key_dim, in.decays);
    } else {
      in.decays[0] = a.decays[r * a.decay_stride + head];
    }
    in.step = a.steps[r * a.step_stride + head];
    return in;
  };
  // Addresses of single numbers leave no registers for a second token's many keys, nor do decays of
  // single keys.
  constexpr bool kFetchesAhead = (kWidth > 1 && !Inputs::kOfRows) || kKeys < 32;
  Inputs in = inputs_of(chunk.row);
  for (int64_t r = chunk.row; r < end; ++r) {
    Inputs next = in;
    if (kFetchesAhead && r + 1 < end) next = inputs_of(r + 1);
    float known = 0, sum = 0;
    if constexpr (kRule != Rule::plain) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const float key = Inputs::kOfRows ? in.decay(i) * in.keys[i] : in.keys[i];
        known = fmaf(state[i], key, known);
      }
      known = warp_reduce<kLanes>(known, Plus{});
      if constexpr (kRule == Rule::delta) known *= in.decay(0);
    }
    const float change = in.step * (in.value - known);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state[i] = fmaf(in.keys[i], change, in.decay(i) * state[i]);
      sum = fmaf(state[i], in.queries[i], sum);
    }
    sum = warp_reduce<kLanes>(sum, Plus{});
    if (own && thread % kLanes == 0) {
      const float skipped = a.skip != nullptr ? a.skip[head] * in.value : 0.0f;
      a.out[r * a.out_stride + value] = sum + skipped;
    }
    if constexpr (kFetchesAhead) {
      in = next;
    } else if (r + 1 < end) {
      in = inputs_of(r + 1);
    }
  }
  if (own)
    Part::each(a.key_dim,
               [&](int i, int key) { state_row(a.state, chunk, first + key)[column] = state[i]; });
}

template <Rule kRule, int kLanes, int kKeys>
void launch_scan(const ScanArgs& args, int64_t chunks, int64_t heads, bool by_four, Stream stream) {
  constexpr int kColumns = kThreads / kLanes;
  const Launch at{{static_cast<uint32_t>(chunks), static_cast<uint32_t>(heads),
                   static_cast<uint32_t>((args.value_dim + kColumns - 1) / kColumns)},
                  {kThreads}};
  by_four ? launch(scan_kernel<kRule, kLanes, kKeys, 4>, at, stream, args)
          : launch(scan_kernel<kRule, kLanes, kKeys, 1>, at, stream, args);
}

// Calls body(Constant<lanes>, Constant<keys of each>) for the fewest that hold a column's state.
template <class Body>
void with_keys(int64_t key_dim, Body&& body) {
  check(key_dim <= 32 * 32, "scan: no more keys than registers have room for");
  if (key_dim <= 8 * 4) return body(Constant<8>{}, Constant<4>{});
  if (key_dim <= 8 * 8) return body(Constant<8>{}, Constant<8>{});
  if (key_dim <= 8 * 16) return body(Constant<8>{}, Constant<16>{});
  if (key_dim <= 8 * 32) return body(Constant<8>{}, Constant<32>{});
  body(Constant<32>{}, Constant<32>{});
}

}  // namespace

void decay(Tensor steps, const DecayParams& params, Tensor decays, Stream stream) {
  check_decay(steps, params, decays);
  if (steps.rows == 0 || steps.cols == 0) return;
  launch(decay_kernel, elementwise_launch(steps.rows, steps.cols, 1), stream,
         DecayArgs{steps.row<float>(0), decays.row<float>(0), steps.stride, decays.stride,
                   steps.cols, params.log_rates, params.bias, params.negative_rates, params.least,
                   params.most, params.floor, params.of_head});
}

void slope_decays(const DecaySlopes& slopes, Tensor decays, Stream stream) {
  check_slope_decays(slopes, decays);
  if (decays.rows == 0 || decays.cols == 0) return;
  launch(slope_decays_kernel, elementwise_launch(decays.rows, decays.cols, 1), stream,
         SlopeArgs{.decays = decays.row<float>(0),
                   .stride = decays.stride,
                   .cols = decays.cols,
                   .first = slopes.first,
                   .heads = static_cast<float>(slopes.heads),
                   .factor = slopes.factor});
}

void scan(const ScanInputs& in, const ScanParams& params, const StateRows& state,
          const StateChunks& chunks, Tensor out, Stream stream) {
  check_scan(in, params, state, out);
  if (out.rows == 0) return;
  const int64_t heads = in.steps.cols, d = params.key_dim, value_dim = state.cache.cols;
  const int64_t key_heads = in.keys.cols / d;
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
                      params.tiled ? 0 : static_cast<int>(heads / key_heads),
                      static_cast<int>(key_heads),
                      state.cache,
                      chunks};
  const int64_t count = chunks.chunks != nullptr ? chunks.count : out.rows;
  with_keys(d, [&](auto lanes, auto keys) {
    with_width(
        [&](auto width) {
          const bool by_four = width() == 4 && d % 4 == 0;
          const auto with = [&](auto rule) {
            launch_scan<rule(), lanes(), keys()>(args, count, heads, by_four, stream);
          };
          if (params.decays_rows) return with(Constant<Rule::delta_of_rows>{});
          params.delta ? with(Constant<Rule::delta>{}) : with(Constant<Rule::plain>{});
        },
        in.keys, in.queries, params.decays_rows ? in.decays : in.keys);
  });
}

}  // namespace sluice::cuda
