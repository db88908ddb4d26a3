// Rows of x times a weight of floats, by float32 arithmetic: 16 rows are multiplied while the
// weight is read once.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;

struct FloatArgs {
  const std::byte* weight;
  const float* scales;
  ScaleKind kind;
  const float* bias;
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int rows, cols, tokens;
};

// kWidth elements of x from column c of a token.
template <int kWidth>
__device__ Vec<float, kWidth> load_columns(const float* x) {
  Vec<float, kWidth> v;
  constexpr int kPart = kWidth < 4 ? kWidth : 4;
#pragma unroll
  for (int i = 0; i < kWidth; i += kPart) {
    const auto part = load_as<Vec<float, kPart>>(x + i);
    for (int j = 0; j < kPart; ++j) v.at[i + j] = part.at[j];
  }
  return v;
}

// The tokens that a block has.
template <int kTokens>
__device__ void choose_tokens(FloatArgs& a) {
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  a.x += first * a.x_stride;
  a.y += first * a.y_stride;
  a.tokens -= static_cast<int>(first);
}

// Plain rows: a warp takes a row of the weight and kTokens rows of x, kWidth columns a lane at a
// time.
template <DType kCodes, int kWidth, int kTokens>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) gemv_rows_kernel(FloatArgs a) {
  wait_for_earlier();
  using Code = typename Element<kCodes>::Code;
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= a.rows) return;
  choose_tokens<kTokens>(a);
  const auto* w = reinterpret_cast<const Code*>(a.weight) + int64_t{row} * a.cols;
  float sums[kTokens] = {};
  [[maybe_unused]] constexpr int kUnroll = kTokens == 1 ? 8 : kTokens == 4 ? 2 : 1;
#pragma unroll kUnroll
  for (int c = lane * kWidth; c < a.cols; c += 32 * kWidth) {
    const auto codes = load_streaming<Vec<Code, kWidth>>(w + c);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (n >= a.tokens) continue;
      const auto x = load_columns<kWidth>(a.x + n * a.x_stride + c);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum = fmaf(x.at[i], Element<kCodes>::decode(codes.at[i]), sum);
      sums[n] += sum;
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (n >= a.tokens) continue;
    const float sum = warp_reduce(sums[n], Plus{});
    if (lane == n) a.y[n * a.y_stride + row] = a.bias == nullptr ? sum : sum + a.bias[row];
  }
}

// A cell's values of four rows, columns one after another.
template <DType kCodes>
__device__ void decode_granule(const Vec<uint32_t, 4>& codes,
                               float (&values)[4][kCellCols<kCodes>]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int k = 0; k < kCellCols<kCodes>; ++k) {
      const auto at = static_cast<int>(code_place<kCodes>(r, k));
      using Code = typename Element<kCodes>::Code;
      values[r][k] = Element<kCodes>::decode(static_cast<Code>(codes.at[at / 4] >> (at % 4 * 8)));
    }
  }
}

// Panels: a warp takes one and kTokens rows of x, its lanes four rows of a cell each.
template <DType kCodes, int kTokens>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) gemv_cells_kernel(FloatArgs a) {
  wait_for_earlier();
  constexpr int kCols = kCellCols<kCodes>, kRows = static_cast<int>(kPanelRows);
  constexpr int kBlock = static_cast<int>(kScaleBlock);
  const int lane = static_cast<int>(threadIdx.x), granule = lane % 4;
  const int panel = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (panel * kRows >= a.rows) return;
  choose_tokens<kTokens>(a);
  const int cells = (a.cols + kCols - 1) / kCols, blocks = (a.cols + kBlock - 1) / kBlock;
  const std::byte* w = a.weight + int64_t{panel} * cells * kCellBytes + granule * kLaneBytes;
  float sums[kTokens][4] = {};
  for (int cell = lane / 4; cell < cells; cell += 8) {
    float values[4][kCols];
    decode_granule<kCodes>(load_streaming<Vec<uint32_t, 4>>(w + int64_t{cell} * kCellBytes),
                           values);
    float scale = 1;
    if (a.kind == ScaleKind::per_block)
      scale = a.scales[int64_t{panel} * blocks + cell * kCols / kBlock];
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (n >= a.tokens) continue;
      float x[kCols];
#pragma unroll
      for (int k = 0; k < kCols; ++k) {
        const int c = cell * kCols + k;
        x[k] = c < a.cols ? a.x[n * a.x_stride + c] : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < kCols; ++k) sum = fmaf(x[k], values[r][k], sum);
        sums[n][r] = fmaf(sum, scale, sums[n][r]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (n >= a.tokens) continue;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float sum = sums[n][r];
      for (int apart = 4; apart < 32; apart *= 2) sum += __shfl_xor_sync(kAllLanes, sum, apart);
      const int row = panel * kRows + granule * 4 + r;
      if (a.kind == ScaleKind::per_row) sum *= a.scales[row];
      if (lane < 4) a.y[n * a.y_stride + row] = a.bias == nullptr ? sum : sum + a.bias[row];
    }
  }
}

}  // namespace

void gemv_f32(Tensor x, const Weight& w, const float* bias, Tensor y, Stream stream) {
  const FloatArgs args{w.data,
                       w.scales,
                       w.format.scales,
                       bias,
                       x.row<float>(0),
                       x.stride,
                       y.row<float>(0),
                       y.stride,
                       static_cast<int>(w.rows),
                       static_cast<int>(w.cols),
                       static_cast<int>(y.rows)};
  const bool panels = w.format.layout == WeightLayout::packed;
  const int64_t most = y.rows <= 1 ? 1 : y.rows <= 4 ? 4 : 16;  // of a block
  const Launch at{
      {static_cast<uint32_t>(ceil_div(panels ? w.rows / kPanelRows : w.rows, kWarpsOfBlock)),
       static_cast<uint32_t>(ceil_div(y.rows, most))},
      {32, kWarpsOfBlock}};
  auto with_tokens = [&](auto&& with) {
    most == 1 ? with(Constant<1>{}) : most == 4 ? with(Constant<4>{}) : with(Constant<16>{});
  };
  if (panels) {
    return with_dtype<DType::bf16, DType::f8_e4m3>(w.format.dtype, [&](auto dtype) {
      with_tokens([&](auto tokens) {
        launch_early(gemv_cells_kernel<dtype(), tokens()>, at, stream, args);
      });
    });
  }
  with_dtype<DType::f32, DType::f16>(w.format.dtype, [&](auto dtype) {
    constexpr int kBytes = sizeof(typename Element<dtype()>::Code);
    const auto start = reinterpret_cast<uintptr_t>(w.data) | reinterpret_cast<uintptr_t>(x.data);
    const bool vectors = w.cols * kBytes % 16 == 0 && x.stride % 4 == 0 && start % 16 == 0;
    with_tokens([&](auto tokens) {
      if (vectors) {
        launch_early(gemv_rows_kernel<dtype(), 16 / kBytes, tokens()>, at, stream, args);
      } else {
        launch_early(gemv_rows_kernel<dtype(), 1, tokens()>, at, stream, args);
      }
    });
  });
}

}  // namespace sluice::cuda
