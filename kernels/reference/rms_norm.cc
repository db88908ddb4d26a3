#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::rms_norm(Tensor x, const Weight& weight, float eps, Tensor y) const {
  check_rms_norm(x, weight, y);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* from = x.row<float>(r);
    float* to = y.row<float>(r);
    double squares = 0;
    for (int64_t c = 0; c < x.cols; ++c) squares += static_cast<double>(from[c]) * from[c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.cols) + eps);
    for (int64_t c = 0; c < x.cols; ++c) {
      to[c] = static_cast<float>(from[c] * scale * decode_element(weight, 0, c));
    }
  }
}

void ReferenceKernels::add_rms_norm(Tensor residual, Tensor x, const Weight& weight, float eps,
                                    Tensor y) const {
  add(residual, x);
  rms_norm(residual, weight, eps, y);
}

}  // namespace sluice
