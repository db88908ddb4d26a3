#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"
#include "kernels/row_weight.h"

namespace sluice {

void CpuKernels::index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                              Tensor out) const {
  check_index(out, rows, weights, x);
  for_rows(out, [&](int64_t i) {
    const int32_t row = rows[static_cast<size_t>(i)];
    check(row >= 0 && row < x.rows, "index_select: a row of x");
    const float weight = row_weight(weights, i);
    const float* from = x.row<float>(row);
    float* to = out.row<float>(i);
    for (int64_t c = 0; c < x.cols; ++c) to[c] = weight * from[c];
  });
}

void CpuKernels::index_add(Tensor x, std::span<const int32_t> rows, Tensor weights,
                           Tensor y) const {
  check_index(x, rows, weights, y);
  for_rows(x, [&](int64_t i) {
    const int32_t row = rows[static_cast<size_t>(i)];
    check(row >= 0 && row < y.rows, "index_add: a row of y");
    const float weight = row_weight(weights, i);
    const float* from = x.row<float>(i);
    float* to = y.row<float>(row);
    for (int64_t c = 0; c < x.cols; ++c) to[c] += weight * from[c];
  });
}

}  // namespace sluice
