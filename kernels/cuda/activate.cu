#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

struct ActivateArgs {
  const float* x;
  const float* up;  // kGated
  float* out;
  const float* values;  // of xielu
  int64_t x_stride, up_stride, out_stride, cols;
};

template <Activation kActivation, int kWidth, bool kGated>
__global__ void __launch_bounds__(kElementwiseThreads) activate_kernel(ActivateArgs a) {
  wait_for_earlier();
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  auto v = load_as<Vec<float, kWidth>>(a.x + blockIdx.x * a.x_stride + c);
  for (int i = 0; i < kWidth; ++i) v.at[i] = activated<kActivation>(a.values, v.at[i]);
  if constexpr (kGated) {
    const auto up = load_as<Vec<float, kWidth>>(a.up + blockIdx.x * a.up_stride + c);
    for (int i = 0; i < kWidth; ++i) v.at[i] *= up.at[i];
  }
  store_as(a.out + blockIdx.x * a.out_stride + c, v);
}

template <Activation kActivation>
void launch_activate(const float* values, Tensor x, Tensor up, Tensor out, Stream stream) {
  const bool gated = up.data != nullptr;
  const ActivateArgs args{x.row<float>(0),   gated ? up.row<float>(0) : nullptr,
                          out.row<float>(0), values,
                          x.stride,          up.stride,
                          out.stride,        x.cols};
  auto with = [&](auto width) {
    const Launch at = elementwise_launch(x.rows, x.cols, width);
    if (gated) {
      launch_early(activate_kernel<kActivation, width(), true>, at, stream, args);
    } else {
      launch_early(activate_kernel<kActivation, width(), false>, at, stream, args);
    }
  };
  gated ? with_width(with, x, up, out) : with_width(with, x, out);
}

}  // namespace

void activate(Activation activation, const float* values, Tensor x, Tensor up, Tensor out,
              Stream stream) {
  check_activate(activation, values, x, up, out);
  if (x.rows == 0 || x.cols == 0) return;
  switch (activation) {
    case Activation::silu:
      return launch_activate<Activation::silu>(values, x, up, out, stream);
    case Activation::gelu:
      return launch_activate<Activation::gelu>(values, x, up, out, stream);
    case Activation::gelu_tanh:
      return launch_activate<Activation::gelu_tanh>(values, x, up, out, stream);
    case Activation::relu:
      return launch_activate<Activation::relu>(values, x, up, out, stream);
    case Activation::relu_squared:
      return launch_activate<Activation::relu_squared>(values, x, up, out, stream);
    case Activation::xielu:
      return launch_activate<Activation::xielu>(values, x, up, out, stream);
    case Activation::sigmoid:
      return launch_activate<Activation::sigmoid>(values, x, up, out, stream);
    case Activation::identity:
      return launch_activate<Activation::identity>(values, x, up, out, stream);
  }
}

}  // namespace sluice::cuda
