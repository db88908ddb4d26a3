// Residual streams beside one another: what layers read of them, and write to them.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kStreamThreads = 256;
constexpr int kMostOf = static_cast<int>(kMostStreams);
constexpr int kMostLogits = kMostOf * (2 + kMostOf);

struct StreamArgs {
  float* streams;
  float* logits;  // or weights
  float* x;       // what is read, or written
  int64_t streams_stride, logits_stride, x_stride;
  int cols, count;  // of logits
  StreamMix mix;
};

struct StreamShared {
  float sums[kStreamThreads / 32];
  float weights[kMostLogits];
};

// Divides each column of m [size][size] by its sum, or each row; a thread takes one.
__device__ inline void divide_lines(float* m, int size, float eps, bool columns) {
  const int step = columns ? size : 1, next = columns ? 1 : size;
  const int i = static_cast<int>(threadIdx.x);
  if (i < size) {
    float sum = eps;
    for (int j = 0; j < size; ++j) sum += m[i * next + j * step];
    for (int j = 0; j < size; ++j) m[i * next + j * step] /= sum;
  }
  __syncthreads();
}

__device__ inline void mix_streams(const StreamMix& mix, float* m) {
  const int size = static_cast<int>(mix.streams), i = static_cast<int>(threadIdx.x);
  if (i < size) {
    float* row = m + i * size;
    float largest = row[0], sum = 0;
    for (int k = 1; k < size; ++k) largest = fmaxf(largest, row[k]);
    for (int k = 0; k < size; ++k) sum += row[k] = expf(row[k] - largest);
    for (int k = 0; k < size; ++k) row[k] = row[k] / sum + mix.eps;
  }
  __syncthreads();
  divide_lines(m, size, mix.eps, true);
  for (int64_t n = 1; n < mix.iterations; ++n) {
    divide_lines(m, size, mix.eps, false);
    divide_lines(m, size, mix.eps, true);
  }
}

// One block a row.
__global__ void __launch_bounds__(kStreamThreads) read_streams_kernel(StreamArgs a) {
  auto& shared = shared_memory<StreamShared>();
  const int s = static_cast<int>(a.mix.streams), i = static_cast<int>(threadIdx.x);
  const float* from = a.streams + blockIdx.x * a.streams_stride;
  float* logits = a.logits + blockIdx.x * a.logits_stride;
  float squares = 0;
  for (int c = i; c < s * a.cols; c += kStreamThreads) squares += from[c] * from[c];
  squares = block_reduce(squares, Plus{}, shared.sums);
  const float root = sqrtf(squares / static_cast<float>(s * a.cols) + a.mix.norm_eps);
  if (i < a.count) {
    const int kind = i / s < 2 ? i / s : 2;
    float x = logits[i] / root * a.mix.scales[kind] + a.mix.biases[i];
    if (kind == 0) x = 1 / (1 + expf(-x)) + a.mix.eps;
    if (kind == 1) x = 2 / (1 + expf(-x));
    shared.weights[i] = x;
  }
  __syncthreads();
  if (a.count > s) mix_streams(a.mix, shared.weights + 2 * s);
  if (i < a.count) logits[i] = shared.weights[i];
  for (int c = i; c < a.cols; c += kStreamThreads) {
    float sum = 0;
    for (int k = 0; k < s; ++k) sum += shared.weights[k] * from[k * a.cols + c];
    a.x[blockIdx.x * a.x_stride + c] = sum;
  }
}

// One block a row.
__global__ void __launch_bounds__(kStreamThreads) write_streams_kernel(StreamArgs a) {
  auto& shared = shared_memory<StreamShared>();
  const int s = static_cast<int>(a.mix.streams), i = static_cast<int>(threadIdx.x);
  if (i < a.count) shared.weights[i] = a.logits[blockIdx.x * a.logits_stride + i];
  __syncthreads();
  float* to = a.streams + blockIdx.x * a.streams_stride;
  for (int c = i; c < a.cols; c += kStreamThreads) {
    const float x = a.x[blockIdx.x * a.x_stride + c];
    float old[kMostOf];
#pragma unroll
    for (int j = 0; j < kMostOf; ++j) old[j] = j < s ? to[j * a.cols + c] : 0;
    for (int k = 0; k < s; ++k) {
      float sum = shared.weights[k] * x;
#pragma unroll
      for (int j = 0; j < kMostOf; ++j)
        if (j < s) sum += shared.weights[s + j * s + k] * old[j];
      to[k * a.cols + c] = sum;
    }
  }
}

Launch block_a_row(int64_t rows) {
  return {{static_cast<uint32_t>(rows)}, {kStreamThreads}, sizeof(StreamShared)};
}

}  // namespace

void read_streams(Tensor streams, const StreamMix& mix, Tensor logits, Tensor out, Stream stream) {
  check_read_streams(streams, mix, logits, out);
  if (out.rows == 0) return;
  launch(read_streams_kernel, block_a_row(out.rows), stream,
         StreamArgs{streams.row<float>(0), logits.row<float>(0), out.row<float>(0), streams.stride,
                    logits.stride, out.stride, static_cast<int>(out.cols),
                    static_cast<int>(logits.cols), mix});
}

void write_streams(Tensor x, Tensor weights, Tensor streams, Stream stream) {
  check_write_streams(x, weights, streams);
  if (x.rows == 0) return;
  launch(write_streams_kernel, block_a_row(x.rows), stream,
         StreamArgs{streams.row<float>(0),
                    weights.row<float>(0),
                    x.row<float>(0),
                    streams.stride,
                    weights.stride,
                    x.stride,
                    static_cast<int>(x.cols),
                    static_cast<int>(weights.cols),
                    {.streams = streams.cols / x.cols}});
}

}  // namespace sluice::cuda
