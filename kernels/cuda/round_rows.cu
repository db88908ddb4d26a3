// Activations in the type that a linear layer multiplies: bf16, or E4M3 or i8 with scales.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "quant/encode.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kMostThreads = 512;
constexpr int kVector = 8;  // columns that a thread rounds to bf16 at a time
constexpr int kHeld = 8;    // vectors of a row that a thread keeps while it looks for the largest

// Stores columns of a row from `c` on, in order or in that of fragments of `cell` columns.
template <class Code, int kWidth>
__device__ void put_columns(Code* row, int c, const Vec<Code, kWidth>& codes, int cell) {
  if (cell == 0) return store_as(row + c, codes);
  for (int i = 0; i < kWidth; ++i) row[fragment_place(c + i, cell)] = codes.at[i];
}

// Columns that x lacks are zero.
template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads)
    bf16_kernel(const float* x, int64_t x_stride, int cols, uint16_t* to, int to_cols, int cell) {
  wait_for_earlier();
  constexpr int kPart = kWidth < 4 ? kWidth : 4;  // of one load
  const int c = static_cast<int>(elementwise_column(kWidth));
  if (c >= to_cols) return;
  const float* from = x + blockIdx.x * x_stride;
  Vec<float, kPart> values[kWidth / kPart] = {};
#pragma unroll
  for (int i = 0; i < kWidth / kPart; ++i) {
    if (c + i * kPart < cols) values[i] = load_as<Vec<float, kPart>>(from + c + i * kPart);
  }
  Vec<uint16_t, kWidth> codes;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) codes.at[i] = float_to_bf16(values[i / kPart].at[i % kPart]);
  put_columns(to + int64_t{blockIdx.x} * to_cols, c, codes, cell);
}

// Storage of codes: E4M3's as they are or as their values, which bf16 has all of; i8's in two's
// complement.
template <class To>
struct Codes;
template <>
struct Codes<uint16_t> {
  using Type = Element<DType::f8_e4m3>;
  SLUICE_HD static uint16_t store(uint8_t code, float factor) {
    return float_to_bf16(Type::decode(code) * factor);
  }
};
template <>
struct Codes<uint8_t> {
  using Type = Element<DType::f8_e4m3>;
  SLUICE_HD static uint8_t store(uint8_t code, float) { return code; }
};
template <>
struct Codes<int8_t> {
  using Type = Element<DType::i8>;
  SLUICE_HD static int8_t store(uint8_t code, float) { return static_cast<int8_t>(code - 128); }
};

// A code of i8 as its value in bf16.
struct I8Value {
  uint16_t bits;
};
template <>
struct Codes<I8Value> {
  using Type = Element<DType::i8>;
  SLUICE_HD static I8Value store(uint8_t code, float) {
    return {float_to_bf16(Type::decode(code))};
  }
};

template <class To>
struct CodeArgs {
  const float* x;
  int64_t x_stride;
  int cols;
  To* to;
  int to_cols;
  int group_cols;  // of a block of threads, which make one scale
  InputScales scales;
  bool scaled;
  int cell;  // as of Bf16Rows
};

// A block makes the codes with one scale. Each thread keeps the numbers that it reads, as far as
// there is room.
template <class To, int kWidth>
__global__ void __launch_bounds__(kMostThreads) code_kernel(CodeArgs<To> a) {
  wait_for_earlier();
  using Type = typename Codes<To>::Type;
  using Values = Vec<float, kWidth>;
  const int group = static_cast<int>(blockIdx.y), step = static_cast<int>(blockDim.x) * kWidth;
  const int begin = group * a.group_cols + static_cast<int>(threadIdx.x) * kWidth;
  const bool last = group + 1 == static_cast<int>(gridDim.y);
  const int to_end = last ? a.to_cols : (group + 1) * a.group_cols;
  const int end = to_end < a.cols ? to_end : a.cols;
  const float* from = a.x + blockIdx.x * a.x_stride;
  auto values = [&](int c) { return c < end ? load_as<Values>(from + c) : Values{}; };
  Values held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = values(begin + i * step);
  float top = 0;
  auto look = [&](const Values& v) {
    for (int j = 0; j < kWidth; ++j) {
      const float magnitude = fabsf(v.at[j]);
      // NaN counts as infinity: maxima would drop it.
      top = Larger{}(
          top, magnitude <= 3.4028234e38f ? magnitude : std::bit_cast<float>(kFloatInfinityBits));
    }
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) look(held[i]);
  for (int c = begin + kHeld * step; c < end; c += step) look(values(c));
  top = block_reduce(top, Larger{}, &shared_memory<float>());
  const float quotient = top / Type::kMax, scale = quotient > 0 ? quotient : 1.0f;
  const bool finite = top < std::bit_cast<float>(kFloatInfinityBits);
  const float told = finite ? scale : std::bit_cast<float>(kFloatNanBits);
  auto round = [&](const Values& v, int c) {
    if (c >= to_end) return;
    Vec<To, kWidth> codes = {};
    for (int j = 0; c < end && j < kWidth; ++j)
      codes.at[j] = Codes<To>::store(Type::encode(v.at[j] / scale), a.scaled ? told : 1);
    put_columns(a.to + int64_t{blockIdx.x} * a.to_cols, c, codes, a.cell);
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) round(held[i], begin + i * step);
  for (int c = begin + kHeld * step; c < to_end; c += step) round(values(c), c);
  if (threadIdx.x == 0)
    a.scales.at[blockIdx.x * a.scales.row_step + group * a.scales.block_step] = told;
}

// Returns whether rows of `cols` elements can be written `width` elements at a time.
bool written_by(int width, const void* to, int64_t cols, size_t element) {
  return cols % width == 0 &&
         reinterpret_cast<uintptr_t>(to) % (static_cast<size_t>(width) * element) == 0;
}

template <class To>
void round_to_codes(Tensor x, To* to, int64_t cols, InputScales scales, bool scaled, int64_t cell,
                    Stream stream) {
  const bool blocks = scales.block_step != 0;
  const int64_t group_cols = blocks ? kScaleBlock : cols;
  const CodeArgs<To> args{x.row<float>(0),
                          x.stride,
                          static_cast<int>(x.cols),
                          to,
                          static_cast<int>(cols),
                          static_cast<int>(group_cols),
                          scales,
                          scaled,
                          static_cast<int>(cell)};
  const auto groups = static_cast<uint32_t>(blocks ? ceil_div(x.cols, kScaleBlock) : 1);
  auto with = [&](auto width) {
    const uint32_t threads = block_threads(ceil_div(group_cols, width()), kMostThreads);
    launch_early(code_kernel<To, width()>,
                 {{static_cast<uint32_t>(x.rows), groups}, {threads}, threads / 32 * 4}, stream,
                 args);
  };
  written_by(4, to, cols, sizeof(To)) ? with_width(with, x) : with(Constant<1>{});
}

}  // namespace

void round_rows_bf16(Tensor x, Bf16Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  if (x.rows == 0) return;
  if (to.scales.at != nullptr)
    return round_to_codes(x, to.data, to.cols, to.scales, to.scaled, to.cell, stream);
  auto with = [&](auto width) {
    launch_early(bf16_kernel<width()>, elementwise_launch(x.rows, to.cols, width()), stream,
                 x.row<float>(0), x.stride, static_cast<int>(x.cols), to.data,
                 static_cast<int>(to.cols), static_cast<int>(to.cell));
  };
  const bool vectors = written_by(kVector, to.data, to.cols, sizeof(uint16_t));
  with_width(
      [&](auto width) { vectors&& width() > 1 ? with(Constant<kVector>{}) : with(Constant<1>{}); },
      x);
}

void round_rows_e4m3(Tensor x, E4M3Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, to.cols, to.scales, false, 0, stream);
}

void round_rows_i8(Tensor x, Bf16Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols && to.scales.block_step == 0,
        "room for all of x");
  round_to_codes(x, reinterpret_cast<I8Value*>(to.data), to.cols, to.scales, false, to.cell,
                 stream);
}

void round_rows_i8(Tensor x, I8Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, to.cols, {to.scales}, false, to.cell, stream);
}

}  // namespace sluice::cuda
