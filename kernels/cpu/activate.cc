#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

float softplus(float x) { return x > 30 ? x : std::log1p(std::exp(x)); }

}  // namespace

void CpuKernels::activate(const ActivationParams& activation, Tensor x, Tensor up,
                          Tensor out) const {
  check_activate(activation, x, up, out);
  cpu::ActivationJob job{
      .activation = activation.kind, .limit = activation.limit, .alpha = activation.alpha};
  if (const float* values = activation.values; values != nullptr) {
    job.xielu = {.alpha_p = softplus(values[0]),
                 .alpha_n = values[2] + softplus(values[1]),
                 .beta = values[2],
                 .eps = values[3]};
  }
  for_rows(x, [&](int64_t row) {
    const float* factors = up.data != nullptr ? up.row<float>(row) : nullptr;
    ops_.activate(job, x.row<float>(row), factors, x.cols, out.row<float>(row));
  });
}

}  // namespace sluice
