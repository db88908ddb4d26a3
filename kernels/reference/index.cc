#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "kernels/row_weight.h"

namespace sluice {

void ReferenceKernels::index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                                    Tensor out) const {
  check_index(out, rows, weights, x);
  for (int64_t i = 0; i < out.rows; ++i) {
    const float* from = x.row<float>(rows[static_cast<size_t>(i)]);
    for (int64_t c = 0; c < x.cols; ++c) out.row<float>(i)[c] = row_weight(weights, i) * from[c];
  }
}

void ReferenceKernels::index_add(Tensor x, std::span<const int32_t> rows, Tensor weights,
                                 Tensor y) const {
  check_index(x, rows, weights, y);
  for (int64_t i = 0; i < x.rows; ++i) {
    float* to = y.row<float>(rows[static_cast<size_t>(i)]);
    for (int64_t c = 0; c < x.cols; ++c) to[c] += row_weight(weights, i) * x.row<float>(i)[c];
  }
}

}  // namespace sluice
