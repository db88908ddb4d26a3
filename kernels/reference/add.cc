#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::add(Tensor x, Tensor y) const {
  check_same_shape(x, y);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] += y.row<float>(r)[c];
  }
}

}  // namespace sluice
