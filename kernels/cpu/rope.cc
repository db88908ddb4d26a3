#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos,
                      Tensor sin) const {
  check_rope(x, head_dim, cos, sin);
  auto* rotate = pairing == RopePairing::halves ? ops_.rope : ops_.rope_neighbours;
  for_rows(x, [&](int64_t row) {
    for (int64_t head = 0; head < x.cols; head += head_dim) {
      rotate(x.row<float>(row) + head, cos.row<float>(row), sin.row<float>(row), cos.cols);
    }
  });
}

}  // namespace sluice
