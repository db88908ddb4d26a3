#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::gated_activation(Activation activation, Tensor gate, Tensor up, Tensor out) const {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  for_rows(gate, [&](int64_t row) {
    ops_.gated_activation(activation, gate.row<float>(row), up.row<float>(row), gate.cols,
                          out.row<float>(row));
  });
}

}  // namespace sluice
