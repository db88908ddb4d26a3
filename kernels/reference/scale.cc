#include <algorithm>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::scale(Tensor x, float factor, const float* by) const {
  check_same_shape(x, x);
  const float product = by != nullptr ? factor * *by : factor;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] *= product;
  }
}

void ReferenceKernels::scale_heads(Tensor x, Tensor factors) const {
  check_scale_heads(x, factors);
  const int64_t dim = x.cols / factors.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] *= factors.row<float>(r)[c / dim];
  }
}

void ReferenceKernels::soft_cap(Tensor x, float cap) const {
  check_soft_cap(x, cap);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      float& v = x.row<float>(r)[c];
      v = static_cast<float>(cap * std::tanh(double{v} / cap));
    }
  }
}

void ReferenceKernels::clamp(Tensor x, float limit) const {
  check_clamp(x, limit);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      float& v = x.row<float>(r)[c];
      v = std::clamp(v, -limit, limit);
    }
  }
}

}  // namespace sluice
