// Products of heads with matrices of their own, in float32. Weights in groups are decoded to
// float32 ahead of them, some rows at a time.
#include <algorithm>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kTokens = 8;        // rows of x that a thread multiplies at once
constexpr int kWarpsOfBlock = 8;  // each with a row of the weight
constexpr int kThreads = 128;     // each with columns of a head
constexpr int64_t kDecodedRows = 1024;

struct HeadsArgs {
  const std::byte* codes;
  int64_t panel_bytes;  // 0: plain rows
  const float* scales;  // or null
  ScaleKind kind;
  int cols;
  int64_t first_row, end_row;  // of all heads' rows: those that the weight has
  int64_t head_rows, tail;
  const float* x;
  float* y;
  int64_t x_stride, x_step, y_stride, y_step;
  int64_t tokens;
};

// Columns c .. c + kWidth - 1 of a row of the weight, which have one scale.
template <DType kDType, int kWidth>
__device__ Vec<float, kWidth> load_weights(const HeadsArgs& a, int64_t row, int c) {
  using Code = typename Element<kDType>::Code;
  Vec<Code, kWidth> codes;
  if (!kInPanels<kDType> || a.panel_bytes == 0) {
    codes = load_as<Vec<Code, kWidth>>(reinterpret_cast<const Code*>(a.codes) + row * a.cols + c);
  } else if constexpr (kInPanels<kDType>) {
    constexpr int kTogether = kWidth == 1 ? 1 : 2;  // columns of a row that lie so in each format
    const std::byte* panel = a.codes + row / kPanelRows * a.panel_bytes;
#pragma unroll
    for (int i = 0; i < kWidth; i += kTogether) {
      const auto part = load_as<Vec<Code, kTogether>>(panel + code_place<kDType>(row, c + i));
      for (int j = 0; j < kTogether; ++j) codes.at[i + j] = part.at[j];
    }
  }
  float scale = 1;
  if (a.kind == ScaleKind::per_row) scale = a.scales[row];
  if (a.kind == ScaleKind::per_block)
    scale = a.scales[row / kPanelRows * ceil_div(a.cols, kScaleBlock) + c / kScaleBlock];
  Vec<float, kWidth> w;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) w.at[i] = Element<kDType>::decode(codes.at[i]) * scale;
  return w;
}

// x: kWarpsOfBlock rows of the weight; y: kTokens rows of x. A warp makes an element of each.
template <DType kDType, int kWidth>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) transposed_kernel(HeadsArgs a) {
  wait_for_earlier();
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = int64_t{blockIdx.x} * kWarpsOfBlock + threadIdx.y;
  if (a.first_row + row >= a.end_row) return;
  const int64_t head = (a.first_row + row) / a.head_rows, at = (a.first_row + row) % a.head_rows;
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  const float* x = a.x + first * a.x_stride + head * a.x_step;
  float sums[kTokens] = {};
  for (int c = lane * kWidth; c < a.cols; c += 32 * kWidth) {
    const auto w = load_weights<kDType, kWidth>(a, row, c);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (first + n >= a.tokens) continue;
      const auto by = load_as<Vec<float, kWidth>>(x + n * a.x_stride + c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[n] = fmaf(by.at[i], w.at[i], sums[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (first + n >= a.tokens) continue;
    const float sum = warp_reduce(sums[n], Plus{});
    float* y = a.y + (first + n) * a.y_stride + head * a.y_step;
    if (lane == n) y[at] = sum;
    for (int64_t t = lane; at == 0 && t < a.tail; t += 32)
      y[a.head_rows + t] = x[n * a.x_stride + a.cols + t];
  }
}

// x: heads, from the first one of the weight on; y: kTokens rows of x; z: columns. A thread adds up
// the head's rows in order, to what y has of the rows before the weight's.
template <DType kDType, int kWidth>
__global__ void __launch_bounds__(kThreads) plain_kernel(HeadsArgs a) {
  wait_for_earlier();
  const int64_t head = a.first_row / a.head_rows + blockIdx.x, begin = head * a.head_rows;
  const int64_t from = begin > a.first_row ? begin : a.first_row;
  const int64_t end = begin + a.head_rows < a.end_row ? begin + a.head_rows : a.end_row;
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  const float* x = a.x + first * a.x_stride + head * a.x_step;
  float* y = a.y + first * a.y_stride + head * a.y_step;
  const int c = static_cast<int>(blockIdx.z * kThreads + threadIdx.x) * kWidth;
  if (blockIdx.z == 0 && from == begin) {
    for (int64_t i = threadIdx.x; i < a.tail * kTokens; i += kThreads) {
      const int64_t n = i / a.tail, t = i % a.tail;
      if (first + n < a.tokens)
        y[n * a.y_stride + a.cols + t] = x[n * a.x_stride + a.head_rows + t];
    }
  }
  if (c >= a.cols) return;
  Vec<float, kWidth> sums[kTokens] = {};
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (from > begin && first + n < a.tokens)
      sums[n] = load_as<Vec<float, kWidth>>(y + n * a.y_stride + c);
  }
#pragma unroll 4
  for (int64_t row = from; row < end; ++row) {
    const auto w = load_weights<kDType, kWidth>(a, row - a.first_row, c);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (first + n >= a.tokens) continue;
      const float by = x[n * a.x_stride + row - begin];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[n].at[i] = fmaf(by, w.at[i], sums[n].at[i]);
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (first + n < a.tokens) store_as(y + n * a.y_stride + c, sums[n]);
  }
}

// Returns whether rows of x, or of y, and of the weight can be taken four columns at a time.
bool by_four(const HeadsArgs& a, HeadProduct product) {
  const bool plain = product == HeadProduct::plain;
  const auto at = reinterpret_cast<uintptr_t>(plain ? a.y : a.x);
  const int64_t stride = plain ? a.y_stride : a.x_stride, step = plain ? a.y_step : a.x_step;
  return at % 16 == 0 && stride % 4 == 0 && step % 4 == 0 && a.cols % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.codes) % 16 == 0;
}

template <DType kDType, int kWidth>
void launch_heads(const HeadsArgs& a, HeadProduct product, Stream stream) {
  const auto tokens = static_cast<uint32_t>(ceil_div(a.tokens, kTokens));
  if (product == HeadProduct::transposed) {
    const auto blocks = static_cast<uint32_t>(ceil_div(a.end_row - a.first_row, kWarpsOfBlock));
    return launch_early(transposed_kernel<kDType, kWidth>, {{blocks, tokens}, {32, kWarpsOfBlock}},
                        stream, a);
  }
  const int64_t heads = ceil_div(a.end_row, a.head_rows) - a.first_row / a.head_rows;
  const auto columns = static_cast<uint32_t>(ceil_div(a.cols, kThreads * kWidth));
  launch_early(plain_kernel<kDType, kWidth>,
               {{static_cast<uint32_t>(heads), tokens, columns}, {kThreads}}, stream, a);
}

void multiply_decoded(Tensor x, int64_t x_step, const HeadMatrices& m, HeadProduct product,
                      Tensor y, int64_t y_step, Stream stream) {
  const Weight& w = m.weight;
  const HeadsArgs args{w.data,
                       panel_step(w),
                       w.scales,
                       w.format.scales,
                       static_cast<int>(w.cols),
                       m.first_row,
                       std::min(m.first_row + w.rows, m.heads * m.rows),
                       m.rows,
                       m.tail,
                       x.row<float>(0),
                       y.row<float>(0),
                       x.stride,
                       x_step,
                       y.stride,
                       y_step,
                       x.rows};
  if (args.end_row <= args.first_row) return;  // padding alone
  with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8>(
      w.format.dtype, [&](auto dtype) {
        by_four(args, product) ? launch_heads<dtype(), 4>(args, product, stream)
                               : launch_heads<dtype(), 1>(args, product, stream);
      });
}

}  // namespace

uint64_t heads_workspace_bytes(int64_t head_cols) {
  return static_cast<uint64_t>(kDecodedRows * head_cols) * sizeof(float);
}

void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& m, HeadProduct product, Tensor y,
                    int64_t y_step, std::span<std::byte> workspace, Stream stream) {
  check_multiply_heads(x, x_step, m, product, y, y_step);
  check(!m.weight.is_meta(), "multiply_heads: a resident weight");
  if (x.rows == 0) return;
  if (!is_grouped(m.weight.format))
    return multiply_decoded(x, x_step, m, product, y, y_step, stream);
  check(heads_workspace_bytes(m.weight.cols) <= workspace.size(), "multiply_heads: workspace");
  for (int64_t row = 0; row < m.weight.rows; row += kDecodedRows) {
    const int64_t rows = std::min(kDecodedRows, m.weight.rows - row), cols = m.weight.cols;
    grouped_rows(m.weight, row, {workspace.data(), DType::f32, rows, cols, cols}, stream);
    HeadMatrices some = m;
    some.weight = {{DType::f32, WeightLayout::rows, ScaleKind::none}, rows, cols, workspace.data()};
    some.first_row += row;
    multiply_decoded(x, x_step, some, product, y, y_step, stream);
  }
}

}  // namespace sluice::cuda
