#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::scale(Tensor x, float factor, const float* by) const {
  check_same_shape(x, x);
  const float product = by != nullptr ? factor * *by : factor;
  for_rows(x, [&](int64_t row) { ops_.scale(x.row<float>(row), product, x.cols); });
}

void CpuKernels::scale_heads(Tensor x, Tensor factors) const {
  check_scale_heads(x, factors);
  const int64_t dim = x.cols / factors.cols;
  for_rows(x, [&](int64_t row) {
    for (int64_t h = 0; h < factors.cols; ++h)
      ops_.scale(x.row<float>(row) + h * dim, factors.row<float>(row)[h], dim);
  });
}

void CpuKernels::soft_cap(Tensor x, float cap) const {
  check_soft_cap(x, cap);
  for_rows(x, [&](int64_t row) { ops_.soft_cap(x.row<float>(row), cap, x.cols); });
}

void CpuKernels::clamp(Tensor x, float limit) const {
  check_clamp(x, limit);
  for_rows(x, [&](int64_t row) { ops_.clamp(x.row<float>(row), limit, x.cols); });
}

}  // namespace sluice
