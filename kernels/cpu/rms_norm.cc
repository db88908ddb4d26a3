#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

int64_t norm_workspace(int64_t cols) { return cols * static_cast<int64_t>(sizeof(float)); }

void CpuKernels::rms_norm(Tensor x, const Weight& weight, float eps, Tensor y) const {
  check_rms_norm(x, weight, y);
  auto* factors = reinterpret_cast<float*>(scratch(norm_workspace(x.cols)));
  decode_row(weight, 0, factors);
  for_rows(x, [&](int64_t row) {
    ops_.rms_norm(x.row<float>(row), factors, x.cols, eps, y.row<float>(row));
  });
}

void CpuKernels::add_rms_norm(Tensor residual, Tensor x, const Weight& weight, float eps,
                              Tensor y) const {
  check_rms_norm(residual, weight, y);
  check_same_shape(residual, x);
  auto* factors = reinterpret_cast<float*>(scratch(norm_workspace(x.cols)));
  decode_row(weight, 0, factors);
  for_rows(x, [&](int64_t row) {
    ops_.add_rms_norm(residual.row<float>(row), x.row<float>(row), factors, x.cols, eps,
                      y.row<float>(row));
  });
}

}  // namespace sluice
