// Softmax pooling over windows of tokens, whose sums are a state.
#include "kernels/cuda/states.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kPoolThreads = 128;

struct PoolArgs {
  const float* values;
  const float* gates;
  float* out;
  int64_t values_stride, gates_stride, out_stride, rows, cols;
  PoolParams params;
  StateCache state;
  StateChunks chunks;
};

// A column's sums over a window.
struct PoolSums {
  float largest = 0, total = 0, values = 0;

  __device__ void add(float gate, float value) {
    const bool first = total == 0;
    const float top = first ? gate : fmaxf(largest, gate);
    const float keep = first ? 0 : expf(largest - top), take = expf(gate - top);
    total = total * keep + take;
    values = values * keep + value * take;
    largest = top;
  }
  // The mean of both.
  __device__ float mean(const PoolSums& other) const {
    if (other.total == 0) return values / total;
    const float top = fmaxf(largest, other.largest);
    const float a = expf(largest - top), b = expf(other.largest - top);
    return (values * a + other.values * b) / (total * a + other.total * b);
  }
};

__device__ inline void load_sums(const PoolArgs& a, const StateChunk& chunk, int64_t c, int number,
                                 PoolSums& sums) {
  if (chunk.fresh) return;
  sums.largest = state_row(a.state, chunk, 3 * number)[c];
  sums.total = state_row(a.state, chunk, 3 * number + 1)[c];
  sums.values = state_row(a.state, chunk, 3 * number + 2)[c];
}
__device__ inline void store_sums(const PoolArgs& a, const StateChunk& chunk, int64_t c, int number,
                                  const PoolSums& sums) {
  state_row(a.state, chunk, 3 * number)[c] = sums.largest;
  state_row(a.state, chunk, 3 * number + 1)[c] = sums.total;
  state_row(a.state, chunk, 3 * number + 2)[c] = sums.values;
}

// A thread takes a column of a chunk, row by row.
template <bool kOverlaps>
__global__ void __launch_bounds__(kPoolThreads) pool_kernel(PoolArgs a) {
  const int64_t c = int64_t{blockIdx.y} * kPoolThreads + threadIdx.x;
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk) || c >= a.cols) return;
  const int64_t other = kOverlaps ? a.cols + c : c, width = kOverlaps ? 2 * a.cols : a.cols;
  PoolSums own, next, before;
  load_sums(a, chunk, c, 0, own);
  if constexpr (kOverlaps) {
    load_sums(a, chunk, c, 1, next);
    load_sums(a, chunk, c, 2, before);
  }
  int64_t place = a.chunks.positions[chunk.row] % a.params.tokens;
  for (int64_t r = chunk.row; r < chunk.row + chunk.rows; ++r) {
    const float* bias = a.params.bias + place * width;
    const float *x = a.values + r * a.values_stride, *gate = a.gates + r * a.gates_stride;
    if (place == 0) own.total = next.total = 0;
    own.add(gate[other] + bias[other], x[other]);
    if constexpr (kOverlaps) next.add(gate[c] + bias[c], x[c]);
    const bool ends = ++place == a.params.tokens;
    a.out[r * a.out_stride + c] = ends ? own.mean(before) : 0;
    if (!ends) continue;
    if constexpr (kOverlaps) before = next;
    place = 0;
  }
  store_sums(a, chunk, c, 0, own);
  if constexpr (kOverlaps) {
    store_sums(a, chunk, c, 1, next);
    store_sums(a, chunk, c, 2, before);
  }
}

}  // namespace

void pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
          const StateChunks& chunks, Tensor out, Stream stream) {
  check_pool(values, gates, params, state, out);
  if (out.rows == 0 || out.cols == 0) return;
  const PoolArgs args{values.row<float>(0),
                      gates.row<float>(0),
                      out.row<float>(0),
                      values.stride,
                      gates.stride,
                      out.stride,
                      out.rows,
                      out.cols,
                      params,
                      state.cache,
                      chunks};
  const int64_t first = chunks.chunks != nullptr ? chunks.count : out.rows;
  const Launch at{
      {static_cast<uint32_t>(first), static_cast<uint32_t>(ceil_div(out.cols, kPoolThreads))},
      {kPoolThreads}};
  params.overlaps ? launch(pool_kernel<true>, at, stream, args)
                  : launch(pool_kernel<false>, at, stream, args);
}

}  // namespace sluice::cuda
