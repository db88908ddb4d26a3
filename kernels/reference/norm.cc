#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::norm(Tensor x, const Weight& weight, const NormParams& params,
                            Tensor y) const {
  check_norm(x, weight, params, y);
  const int64_t cols = weight.cols, parts = x.cols / cols;
  for (int64_t i = 0; i < x.rows * parts; ++i) {
    const float* from = x.row<float>(i / parts) + i % parts * cols;
    float* to = y.row<float>(i / parts) + i % parts * cols;
    double mean = 0, squares = 0;
    if (params.kind == NormKind::layer) {
      for (int64_t c = 0; c < cols; ++c) mean += from[c];
      mean /= static_cast<double>(cols);
    }
    for (int64_t c = 0; c < cols; ++c) squares += (from[c] - mean) * (from[c] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + params.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double factor = params.weight_offset + decode_element(weight, 0, c);
      const double bias = params.bias != nullptr ? params.bias[c] : 0;
      to[c] = static_cast<float>((from[c] - mean) * scale * factor + bias);
    }
  }
}

void ReferenceKernels::add_norm(Tensor residual, Tensor x, const Weight& weight,
                                const NormParams& params, Tensor y) const {
  add(residual, x);
  norm(residual, weight, params, y);
}

}  // namespace sluice
