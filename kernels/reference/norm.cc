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
    double count = static_cast<double>(cols);
    if (params.squares != nullptr) {
      squares = params.squares[i];
      count = static_cast<double>(params.squares_cols);
    }
    const double scale = 1 / std::sqrt(squares / count + params.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double factor =
          params.weight_offset + (weight.is_meta() ? 1 : decode_element(weight, 0, c));
      const double bias = params.bias != nullptr ? params.bias[c] : 0;
      to[c] = static_cast<float>((from[c] - mean) * scale * factor + bias);
    }
  }
}

void ReferenceKernels::sum_squares(Tensor x, Tensor sums) const {
  check_sum_squares(x, sums);
  for (int64_t r = 0; r < x.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += double{x.row<float>(r)[c]} * x.row<float>(r)[c];
    sums.row<float>(r)[0] = static_cast<float>(sum);
  }
}

void ReferenceKernels::add_norm(Tensor residual, Tensor x, const Weight& weight,
                                const NormParams& params, Tensor y) const {
  add(residual, x);
  norm(residual, weight, params, y);
}

}  // namespace sluice
