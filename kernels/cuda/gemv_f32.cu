// Rows of x times a weight of any float format, by float32 arithmetic: 16 rows are multiplied while
// the weight is read once.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;

struct GemvArgs {
  const std::byte* weight;
  const float* scales;
  ScaleKind kind;
  const float* bias;
  const float* x;
  InputScales x_scales;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int rows, cols, tokens;
  bool round;
};

// kWidth elements of x from column c of a token.
template <int kWidth>
__device__ Vec<float, kWidth> load_x(const float* x) {
  Vec<float, kWidth> v;
  constexpr int kPart = kWidth < 4 ? kWidth : 4;
#pragma unroll
  for (int i = 0; i < kWidth; i += kPart) {
    const auto part = load_as<Vec<float, kPart>>(x + i);
    for (int j = 0; j < kPart; ++j) v.at[i + j] = part.at[j];
  }
  return v;
}

// A warp takes a row of the weight and kTokens rows of x, kWidth columns a lane at a time: they
// share one scale.
template <DType kCodes, int kWidth, int kTokens>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) gemv_kernel(GemvArgs a) {
  wait_for_earlier();
  using Code = typename Element<kCodes>::Code;
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= a.rows) return;
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  a.x += first * a.x_stride;
  a.y += first * a.y_stride;
  if (a.x_scales.at != nullptr) a.x_scales.at += first * a.x_scales.row_step;
  a.tokens -= static_cast<int>(first);
  const auto* w = reinterpret_cast<const Code*>(a.weight) + int64_t{row} * a.cols;
  const int64_t first_scale =
      row / kPanelRows * ((a.cols + kScaleBlock - 1) / kScaleBlock);  // per_block
  float sums[kTokens] = {};
  [[maybe_unused]] constexpr int kUnroll = kTokens == 1 ? 8 : kTokens == 4 ? 2 : 1;
#pragma unroll kUnroll
  for (int c = lane * kWidth; c < a.cols; c += 32 * kWidth) {
    const auto codes = load_streaming<Vec<Code, kWidth>>(w + c);
    float scale = 1;
    if (a.kind == ScaleKind::per_block) scale = a.scales[first_scale + c / kScaleBlock];
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (n >= a.tokens) continue;
      const auto x = load_x<kWidth>(a.x + n * a.x_stride + c);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float factor = a.round ? bf16_to_float(float_to_bf16(x.at[i])) : x.at[i];
        sum = fmaf(factor, Element<kCodes>::decode(codes.at[i]), sum);
      }
      if (a.x_scales.block_step != 0) {
        sum *= a.x_scales.at[n * a.x_scales.row_step + c / kScaleBlock * a.x_scales.block_step];
      }
      sums[n] = fmaf(sum, scale, sums[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (n >= a.tokens) continue;
    float sum = warp_reduce(sums[n], Plus{});
    if (lane != n) continue;
    if (a.x_scales.at != nullptr && a.x_scales.block_step == 0)
      sum *= a.x_scales.at[n * a.x_scales.row_step];
    if (a.kind == ScaleKind::per_row) sum *= a.scales[row];
    a.y[n * a.y_stride + row] = a.bias == nullptr ? sum : sum + a.bias[row];
  }
}

}  // namespace

void gemv_f32(Tensor x, InputScales x_scales, const Weight& w, const float* bias, bool round,
              Tensor y, Stream stream) {
  const GemvArgs args{w.data,
                      w.scales,
                      w.format.scales,
                      bias,
                      x.row<float>(0),
                      x_scales,
                      x.stride,
                      y.row<float>(0),
                      y.stride,
                      static_cast<int>(w.rows),
                      static_cast<int>(w.cols),
                      static_cast<int>(y.rows),
                      round};
  const int64_t most = y.rows <= 1 ? 1 : y.rows <= 4 ? 4 : 16;  // of a block
  const Launch at{{static_cast<uint32_t>(ceil_div(w.rows, kWarpsOfBlock)),
                   static_cast<uint32_t>(ceil_div(y.rows, most))},
                  {32, kWarpsOfBlock}};
  with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3>(w.format.dtype, [&](auto dtype) {
    constexpr int kBytes = sizeof(typename Element<dtype()>::Code);
    const auto start = reinterpret_cast<uintptr_t>(w.data) | reinterpret_cast<uintptr_t>(x.data);
    const bool vectors = w.cols * kBytes % 16 == 0 && x.stride % 4 == 0 && start % 16 == 0;
    auto with = [&](auto tokens) {
      if (vectors) {
        launch_early(gemv_kernel<dtype(), 16 / kBytes, tokens()>, at, stream, args);
      } else {
        launch_early(gemv_kernel<dtype(), 1, tokens()>, at, stream, args);
      }
    };
    most == 1 ? with(Constant<1>{}) : most == 4 ? with(Constant<4>{}) : with(Constant<16>{});
  });
}

}  // namespace sluice::cuda
