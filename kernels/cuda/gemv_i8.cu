// A few rows of x, rounded to i8, times a weight of i8: exact sums of integers.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;

struct GemvArgs {
  const uint8_t* weight;  // code + 128
  const float* scales;
  const float* bias;
  const int8_t* x;
  const float* x_scales;
  float* y;
  int64_t y_stride;
  int rows, cols, x_cols, tokens;
};

// sums[token] += the products of kWidth columns.
template <int kWidth, int kTokens>
__device__ void multiply(const GemvArgs& a, const uint8_t* w, int col, int (&sums)[kTokens]) {
  if constexpr (kWidth == 1) {
    const int code = w[col] - 128;
    for (int n = 0; n < kTokens; ++n) {
      if (n < a.tokens) sums[n] += code * a.x[int64_t{n} * a.x_cols + col];
    }
  } else {
    auto codes = load_streaming<Vec<uint32_t, 4>>(w + col);
    for (int i = 0; i < 4; ++i) codes.at[i] ^= 0x80808080;  // without the 128: two's complement
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (n >= a.tokens) continue;
      const auto x = load_as<Vec<uint32_t, 4>>(a.x + int64_t{n} * a.x_cols + col);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[n] = __dp4a(static_cast<int>(codes.at[i]), static_cast<int>(x.at[i]), sums[n]);
      }
    }
  }
}

// A warp takes a row of the weight.
template <int kWidth, int kTokens>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) gemv_kernel(GemvArgs a) {
  wait_for_earlier();
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= a.rows) return;
  const uint8_t* w = a.weight + int64_t{row} * a.cols;
  int sums[kTokens] = {};
  [[maybe_unused]] constexpr int kUnroll = kTokens == 16 ? 2 : 4;
#pragma unroll kUnroll
  for (int c = lane * kWidth; c < a.cols; c += 32 * kWidth) {
    multiply<kWidth, kTokens>(a, w, c, sums);
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (n >= a.tokens) continue;
    const int sum = warp_reduce(sums[n], Plus{});
    if (lane != n) continue;
    const float product = static_cast<float>(sum) * a.x_scales[n] * a.scales[row];
    a.y[n * a.y_stride + row] = a.bias == nullptr ? product : product + a.bias[row];
  }
}

}  // namespace

void gemv_i8(I8Rows x, const Weight& w, const float* bias, Tensor y, Stream stream) {
  check(w.format.dtype == DType::i8 && w.format.scales == ScaleKind::per_row &&
            x.cols % kI8Cols == 0 && w.cols <= kMostI8Cols && y.rows <= 16,
        "a few rows times i8 codes");
  const GemvArgs args{reinterpret_cast<const uint8_t*>(w.data),
                      w.scales,
                      bias,
                      x.data,
                      x.scales,
                      y.row<float>(0),
                      y.stride,
                      static_cast<int>(w.rows),
                      static_cast<int>(w.cols),
                      static_cast<int>(x.cols),
                      static_cast<int>(y.rows)};
  const Launch at{{static_cast<uint32_t>(ceil_div(w.rows, kWarpsOfBlock))}, {32, kWarpsOfBlock}};
  const bool vectors = w.cols % kI8Cols == 0 && reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
  auto with = [&](auto tokens) {
    if (vectors) {
      launch_early(gemv_kernel<kI8Cols, tokens()>, at, stream, args);
    } else {
      launch_early(gemv_kernel<1, tokens()>, at, stream, args);
    }
  };
  y.rows <= 1 ? with(Constant<1>{}) : y.rows <= 4 ? with(Constant<4>{}) : with(Constant<16>{});
}

}  // namespace sluice::cuda
