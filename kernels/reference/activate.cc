#include <algorithm>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// arXiv:2411.13010, (11); values as kXieluValues has them.
double xielu(const float* values, double x) {
  const double beta = values[2];
  if (x > 0) return softplus(values[0]) * x * x + beta * x;
  const double alpha = beta + softplus(values[1]);
  return (std::expm1(std::min<double>(x, values[3])) - x) * alpha + beta * x;
}

double activated(Activation activation, const float* values, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
    case Activation::gelu_tanh:  // arXiv:1606.08415, section 2
      return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::xielu:
      return xielu(values, x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::softplus:
      return softplus(x);
    default:  // identity; those with limits are elsewhere
      return x;
  }
}

// The value of an activation that has a limit.
double limited(const ActivationParams& params, double x, double up) {
  const double limit = params.limit, gate = std::min(x, limit);
  const double factor = std::clamp(up, -limit, limit);
  if (params.kind == Activation::clamped_silu) return gate / (1 + std::exp(-gate)) * factor;
  if (params.kind == Activation::silu_clamped)
    return std::min(x / (1 + std::exp(-x)), limit) * factor;
  return gate / (1 + std::exp(-params.alpha * gate)) * (1 + factor);
}

}  // namespace

void ReferenceKernels::activate(const ActivationParams& activation, Tensor x, Tensor up,
                                Tensor out) const {
  check_activate(activation, x, up, out);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      const double factor = up.data != nullptr ? up.row<float>(r)[c] : 1;
      const double at = x.row<float>(r)[c];
      out.row<float>(r)[c] = static_cast<float>(
          has_limit(activation.kind) ? limited(activation, at, factor)
                                     : activated(activation.kind, activation.values, at) * factor);
    }
  }
}

}  // namespace sluice
