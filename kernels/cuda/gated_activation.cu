#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

template <Activation kActivation>
__device__ float activate(float x) {
  constexpr float kSqrtHalf = 0.70710678118654752f;       // sqrt(1 / 2)
  constexpr float kSqrtTwoOverPi = 0.79788456080286536f;  // sqrt(2 / pi)
  if constexpr (kActivation == Activation::silu) return x / (1 + expf(-x));
  if constexpr (kActivation == Activation::gelu) return 0.5f * x * (1 + erff(x * kSqrtHalf));
  if constexpr (kActivation == Activation::gelu_tanh) {  // arXiv:1606.08415, section 2
    return 0.5f * x * (1 + tanhf(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
  }
  return x > 0 ? x : 0;
}

struct GatedArgs {
  const float* gate;
  const float* up;
  float* out;
  int64_t gate_stride, up_stride, out_stride, cols;
};

template <Activation kActivation, int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads) gated_kernel(GatedArgs a) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  auto v = load_as<Vec<float, kWidth>>(a.gate + blockIdx.x * a.gate_stride + c);
  const auto up = load_as<Vec<float, kWidth>>(a.up + blockIdx.x * a.up_stride + c);
  for (int i = 0; i < kWidth; ++i) v.at[i] = activate<kActivation>(v.at[i]) * up.at[i];
  store_as(a.out + blockIdx.x * a.out_stride + c, v);
}

template <Activation kActivation>
void launch_gated(Tensor gate, Tensor up, Tensor out, Stream stream) {
  const GatedArgs args{gate.row<float>(0), up.row<float>(0), out.row<float>(0), gate.stride,
                       up.stride,          out.stride,       gate.cols};
  with_width(
      [&](auto width) {
        launch(gated_kernel<kActivation, width()>, elementwise_launch(gate.rows, gate.cols, width),
               stream, args);
      },
      gate, up, out);
}

}  // namespace

void gated_activation(Activation activation, Tensor gate, Tensor up, Tensor out, Stream stream) {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  if (gate.rows == 0 || gate.cols == 0) return;
  switch (activation) {
    case Activation::silu:
      return launch_gated<Activation::silu>(gate, up, out, stream);
    case Activation::gelu:
      return launch_gated<Activation::gelu>(gate, up, out, stream);
    case Activation::gelu_tanh:
      return launch_gated<Activation::gelu_tanh>(gate, up, out, stream);
    case Activation::relu:
      return launch_gated<Activation::relu>(gate, up, out, stream);
  }
}

}  // namespace sluice::cuda
