#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

double activate(Activation activation, double x) {
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

void ReferenceKernels::gated_activation(Activation activation, Tensor gate, Tensor up,
                                        Tensor out) const {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  for (int64_t r = 0; r < gate.rows; ++r) {
    for (int64_t c = 0; c < gate.cols; ++c) {
      double activated = activate(activation, gate.row<float>(r)[c]);
      out.row<float>(r)[c] = static_cast<float>(activated * up.row<float>(r)[c]);
    }
  }
}

}  // namespace sluice
