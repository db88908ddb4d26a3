#include <algorithm>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::index_select(Tensor x, std::span<const int32_t> rows, Tensor out) const {
  check_index(out, rows, x);
  for (int64_t i = 0; i < out.rows; ++i)
    std::copy_n(x.row<float>(rows[static_cast<size_t>(i)]), x.cols, out.row<float>(i));
}

void ReferenceKernels::index_add(Tensor x, std::span<const int32_t> rows, Tensor weights,
                                 Tensor y) const {
  check_index_add(x, rows, weights, y);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float weight = *weights.row<float>(i);
    float* to = y.row<float>(rows[static_cast<size_t>(i)]);
    for (int64_t c = 0; c < x.cols; ++c) to[c] += weight * x.row<float>(i)[c];
  }
}

}  // namespace sluice
