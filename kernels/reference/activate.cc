#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
    case Activation::gelu_tanh:  // arXiv:1606.08415, section 2
      return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return x > 0 ? x : 0;
  }
  return x;
}

}  // namespace

void ReferenceKernels::activate(Activation activation, Tensor x, Tensor up, Tensor out) const {
  check_activate(x, up, out);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      const double factor = up.data != nullptr ? up.row<float>(r)[c] : 1;
      out.row<float>(r)[c] = static_cast<float>(activated(activation, x.row<float>(r)[c]) * factor);
    }
  }
}

}  // namespace sluice
