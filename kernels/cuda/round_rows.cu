// Activations in the type that a linear layer multiplies: bf16, or E4M3 or i8 with scales.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "quant/encode.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// A block makes a row of `to`, of `to_cols` elements; rows and columns that x lacks are zero.
__global__ void __launch_bounds__(kThreads)
    bf16_kernel(const float* x, int64_t x_stride, int rows, int cols, uint16_t* to, int to_cols) {
  const int row = static_cast<int>(blockIdx.x);
  for (int c = static_cast<int>(threadIdx.x); c < to_cols; c += kThreads) {
    const bool there = row < rows && c < cols;
    to[int64_t{row} * to_cols + c] = there ? float_to_bf16(x[row * x_stride + c]) : uint16_t{0};
  }
}

// How codes are kept: E4M3's as they are or as their values, which bf16 has all of; i8's in two's
// complement.
template <class To>
struct Codes;
template <>
struct Codes<float> {
  using Type = Element<DType::f8_e4m3>;
  SLUICE_HD static float store(uint8_t code, float) { return Type::decode(code); }
};
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

template <class To>
struct CodeArgs {
  const float* x;
  int64_t x_stride;
  int rows, cols;
  To* to;
  int to_cols;
  int group_cols;  // of a block of threads, which make one scale
  InputScales scales;
  bool scaled;
};

// The same for codes: a block makes those with one scale.
template <class To>
__global__ void __launch_bounds__(kThreads) code_kernel(CodeArgs<To> a) {
  using Type = typename Codes<To>::Type;
  const int row = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const bool there = row < a.rows;
  const int begin = group * a.group_cols + static_cast<int>(threadIdx.x);
  const bool last = group + 1 == static_cast<int>(gridDim.y);
  const int to_end = last ? a.to_cols : (group + 1) * a.group_cols;
  const int end = to_end < a.cols ? to_end : a.cols;
  const float* from = a.x + row * a.x_stride;
  float top = 0;
  for (int c = begin; there && c < end; c += kThreads) {
    const float magnitude = fabsf(from[c]);
    // NaN counts as infinity: maxima would drop it.
    top = Larger{}(
        top, magnitude <= 3.4028234e38f ? magnitude : std::bit_cast<float>(kFloatInfinityBits));
  }
  top = block_reduce(top, Larger{}, &shared_memory<float>());
  const float quotient = top / Type::kMax, scale = quotient > 0 ? quotient : 1.0f;
  const bool finite = top < std::bit_cast<float>(kFloatInfinityBits);
  const float told = finite ? scale : std::bit_cast<float>(kFloatNanBits);
  for (int c = begin; c < to_end; c += kThreads) {
    const bool code = there && c < end;
    a.to[int64_t{row} * a.to_cols + c] =
        code ? Codes<To>::store(Type::encode(from[c] / scale), a.scaled ? told : 1) : To{0};
  }
  if (there && threadIdx.x == 0)
    a.scales.at[row * a.scales.row_step + group * a.scales.block_step] = told;
}

template <class To>
void round_to_codes(Tensor x, To* to, int64_t rows, int64_t cols, InputScales scales, bool scaled,
                    Stream stream) {
  const bool blocks = scales.block_step != 0;
  const CodeArgs<To> args{x.row<float>(0),
                          x.stride,
                          static_cast<int>(x.rows),
                          static_cast<int>(x.cols),
                          to,
                          static_cast<int>(cols),
                          static_cast<int>(blocks ? kScaleBlock : cols),
                          scales,
                          scaled};
  const auto groups = static_cast<uint32_t>(blocks ? ceil_div(x.cols, kScaleBlock) : 1);
  launch(code_kernel<To>, {{static_cast<uint32_t>(rows), groups}, {kThreads}, kThreads / 32 * 4},
         stream, args);
}

}  // namespace

void round_rows_bf16(Tensor x, Bf16Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.rows >= x.rows && to.cols >= x.cols, "room for all of x");
  if (to.scales.at != nullptr)
    return round_to_codes(x, to.data, to.rows, to.cols, to.scales, to.scaled, stream);
  launch(bf16_kernel, {{static_cast<uint32_t>(to.rows)}, {kThreads}}, stream, x.row<float>(0),
         x.stride, static_cast<int>(x.rows), static_cast<int>(x.cols), to.data,
         static_cast<int>(to.cols));
}

void round_rows_e4m3(Tensor x, E4M3Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, x.rows, to.cols, to.scales, false, stream);
}

void round_rows_e4m3(Tensor x, Tensor to, InputScales scales, Stream stream) {
  check(x.dtype == DType::f32 && to.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.row<float>(0), x.rows, to.stride, scales, false, stream);
}

void round_rows_i8(Tensor x, I8Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, x.rows, to.cols, {to.scales}, false, stream);
}

}  // namespace sluice::cuda
