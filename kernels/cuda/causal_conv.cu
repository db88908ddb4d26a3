#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/states.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 128;

struct ConvArgs {
  const float* x;
  float* y;
  int64_t x_stride, y_stride, rows, cols;
  const float* weight;
  const float* bias;
  int width;
  StateCache state;
  StateChunks chunks;
};

// A thread takes a column of a chunk, row by row: y may be x. kWidth 0: any width.
template <int kWidth, bool kSilu>
__global__ void __launch_bounds__(kThreads) conv_kernel(ConvArgs a) {
  constexpr int kMost = kWidth > 0 ? kWidth : static_cast<int>(kMostConvWidth);
  const int width = kWidth > 0 ? kWidth : a.width;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  StateChunk chunk;
  if (!find_chunk(a.chunks, a.rows, chunk) || c >= a.cols) return;
  float weight[kMost], inputs[kMost];
  for (int w = 0; w < width; ++w) {
    weight[w] = a.weight[c * width + w];
    inputs[w] = 0;
    if (!chunk.fresh && w + 1 < width) inputs[w] = state_row(a.state, chunk, w)[c];
  }
  const float bias = a.bias != nullptr ? a.bias[c] : 0.0f;
  for (int64_t r = chunk.row; r < chunk.row + chunk.rows; ++r) {
    inputs[width - 1] = a.x[r * a.x_stride + c];
    float sum = bias;
    for (int w = 0; w < width; ++w) sum = fmaf(weight[w], inputs[w], sum);
    a.y[r * a.y_stride + c] = kSilu ? sum / (1 + expf(-sum)) : sum;
    for (int w = 0; w + 1 < width; ++w) inputs[w] = inputs[w + 1];
  }
  for (int w = 0; w + 1 < width; ++w) state_row(a.state, chunk, w)[c] = inputs[w];
}

template <int kWidth>
void launch_conv(const ConvArgs& args, bool silu, Stream stream) {
  const int64_t first = args.chunks.chunks != nullptr ? args.chunks.count : args.rows;
  const Launch at{
      {static_cast<uint32_t>(first), static_cast<uint32_t>((args.cols + kThreads - 1) / kThreads)},
      {kThreads}};
  silu ? launch(conv_kernel<kWidth, true>, at, stream, args)
       : launch(conv_kernel<kWidth, false>, at, stream, args);
}

}  // namespace

void causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                 const StateChunks& chunks, Tensor y, Stream stream) {
  check_causal_conv(x, params, state, y);
  if (x.rows == 0 || x.cols == 0) return;
  const ConvArgs args{x.row<float>(0), y.row<float>(0), x.stride,
                      y.stride,        x.rows,          x.cols,
                      params.weight,   params.bias,     static_cast<int>(params.width),
                      state.cache,     chunks};
  switch (params.width) {
    case 3:
      return launch_conv<3>(args, params.silu, stream);
    case 4:
      return launch_conv<4>(args, params.silu, stream);
    default:
      return launch_conv<0>(args, params.silu, stream);
  }
}

}  // namespace sluice::cuda
