#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::add(Tensor x, Tensor y) const {
  check_same_shape(x, y);
  for_rows(x, [&](int64_t row) { ops_.add(x.row<float>(row), y.row<float>(row), x.cols); });
}

}  // namespace sluice
