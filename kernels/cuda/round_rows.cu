// Activations in the type that a linear layer multiplies: bf16, or E4M3 or i8 with a scale for each
// row.
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
  SLUICE_HD static float store(uint8_t code) { return Type::decode(code); }
};
template <>
struct Codes<uint16_t> {
  using Type = Element<DType::f8_e4m3>;
  SLUICE_HD static uint16_t store(uint8_t code) { return float_to_bf16(Type::decode(code)); }
};
template <>
struct Codes<uint8_t> {
  using Type = Element<DType::f8_e4m3>;
  SLUICE_HD static uint8_t store(uint8_t code) { return code; }
};
template <>
struct Codes<int8_t> {
  using Type = Element<DType::i8>;
  SLUICE_HD static int8_t store(uint8_t code) { return static_cast<int8_t>(code - 128); }
};

// The same for codes; the scale of a row that is not finite is NaN.
template <class To>
__global__ void __launch_bounds__(kThreads)
    code_kernel(const float* x, int64_t x_stride, int rows, int cols, To* to, int to_cols,
                float* scales) {
  using Type = typename Codes<To>::Type;
  const bool there = static_cast<int>(blockIdx.x) < rows;
  const float* from = x + blockIdx.x * x_stride;
  float top = 0;
  for (int c = static_cast<int>(threadIdx.x); there && c < cols; c += kThreads) {
    const float magnitude = fabsf(from[c]);
    // NaN counts as infinity: maxima would drop it.
    top = Larger{}(
        top, magnitude <= 3.4028234e38f ? magnitude : std::bit_cast<float>(kFloatInfinityBits));
  }
  top = block_reduce(top, Larger{}, &shared_memory<float>());
  const float quotient = top / Type::kMax, scale = quotient > 0 ? quotient : 1.0f;
  for (int c = static_cast<int>(threadIdx.x); c < to_cols; c += kThreads) {
    const bool code = there && c < cols;
    to[int64_t{blockIdx.x} * to_cols + c] =
        code ? Codes<To>::store(Type::encode(from[c] / scale)) : To{0};
  }
  const bool finite = top < std::bit_cast<float>(kFloatInfinityBits);
  if (there && threadIdx.x == 0) {
    scales[blockIdx.x] = finite ? scale : std::bit_cast<float>(kFloatNanBits);
  }
}

template <class To>
void round_to_codes(Tensor x, To* to, int64_t rows, int64_t cols, float* scales, Stream stream) {
  launch(code_kernel<To>, {{static_cast<uint32_t>(rows)}, {kThreads}, kThreads / 32 * 4}, stream,
         x.row<float>(0), x.stride, static_cast<int>(x.rows), static_cast<int>(x.cols), to,
         static_cast<int>(cols), scales);
}

}  // namespace

void round_rows_bf16(Tensor x, Bf16Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.rows >= x.rows && to.cols >= x.cols, "room for all of x");
  if (to.scales != nullptr) return round_to_codes(x, to.data, to.rows, to.cols, to.scales, stream);
  launch(bf16_kernel, {{static_cast<uint32_t>(to.rows)}, {kThreads}}, stream, x.row<float>(0),
         x.stride, static_cast<int>(x.rows), static_cast<int>(x.cols), to.data,
         static_cast<int>(to.cols));
}

void round_rows_e4m3(Tensor x, E4M3Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, x.rows, to.cols, to.scales, stream);
}

void round_rows_e4m3(Tensor x, Tensor to, float* scales, Stream stream) {
  check(x.dtype == DType::f32 && to.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.row<float>(0), x.rows, to.stride, scales, stream);
}

void round_rows_i8(Tensor x, I8Rows to, Stream stream) {
  check(x.dtype == DType::f32 && to.cols >= x.cols, "room for all of x");
  round_to_codes(x, to.data, x.rows, to.cols, to.scales, stream);
}

}  // namespace sluice::cuda
