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
  float limit, alpha;   // as of ActivationParams
  int64_t x_stride, up_stride, out_stride, cols;
};

template <Activation kActivation, int kWidth, bool kGated>
__global__ void __launch_bounds__(kElementwiseThreads) activate_kernel(ActivateArgs a) {
  wait_for_earlier();
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  auto v = load_as<Vec<float, kWidth>>(a.x + blockIdx.x * a.x_stride + c);
  for (int i = 0; i < kWidth && !has_limit(kActivation); ++i)
    v.at[i] = activated<kActivation>(a.values, v.at[i]);
  if constexpr (kGated) {
    const auto up = load_as<Vec<float, kWidth>>(a.up + blockIdx.x * a.up_stride + c);
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (has_limit(kActivation)) {
        v.at[i] = limited<kActivation>(a.limit, a.alpha, v.at[i], up.at[i]);
      } else {
        v.at[i] *= up.at[i];
      }
    }
  }
  store_as(a.out + blockIdx.x * a.out_stride + c, v);
}

template <Activation kActivation>
void launch_activate(const ActivationParams& params, Tensor x, Tensor up, Tensor out,
                     Stream stream) {
  const bool gated = up.data != nullptr;
  const ActivateArgs args{.x = x.row<float>(0),
                          .up = gated ? up.row<float>(0) : nullptr,
                          .out = out.row<float>(0),
                          .values = params.values,
                          .limit = params.limit,
                          .alpha = params.alpha,
                          .x_stride = x.stride,
                          .up_stride = up.stride,
                          .out_stride = out.stride,
                          .cols = x.cols};
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

void activate(const ActivationParams& activation, Tensor x, Tensor up, Tensor out, Stream stream) {
  check_activate(activation, x, up, out);
  if (x.rows == 0 || x.cols == 0) return;
  switch (activation.kind) {
    case Activation::silu:
      return launch_activate<Activation::silu>(activation, x, up, out, stream);
    case Activation::gelu:
      return launch_activate<Activation::gelu>(activation, x, up, out, stream);
    case Activation::gelu_tanh:
      return launch_activate<Activation::gelu_tanh>(activation, x, up, out, stream);
    case Activation::relu:
      return launch_activate<Activation::relu>(activation, x, up, out, stream);
    case Activation::relu_squared:
      return launch_activate<Activation::relu_squared>(activation, x, up, out, stream);
    case Activation::xielu:
      return launch_activate<Activation::xielu>(activation, x, up, out, stream);
    case Activation::sigmoid:
      return launch_activate<Activation::sigmoid>(activation, x, up, out, stream);
    case Activation::softplus:
      return launch_activate<Activation::softplus>(activation, x, up, out, stream);
    case Activation::identity:
      return launch_activate<Activation::identity>(activation, x, up, out, stream);
    case Activation::clamped_swiglu:
      return launch_activate<Activation::clamped_swiglu>(activation, x, up, out, stream);
    case Activation::clamped_silu:
      return launch_activate<Activation::clamped_silu>(activation, x, up, out, stream);
    case Activation::silu_clamped:
      return launch_activate<Activation::silu_clamped>(activation, x, up, out, stream);
  }
}

}  // namespace sluice::cuda
