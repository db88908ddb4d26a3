#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::activate(Activation activation, Tensor x, Tensor up, Tensor out) const {
  check_activate(x, up, out);
  for_rows(x, [&](int64_t row) {
    const float* factors = up.data != nullptr ? up.row<float>(row) : nullptr;
    ops_.activate(activation, x.row<float>(row), factors, x.cols, out.row<float>(row));
  });
}

}  // namespace sluice
