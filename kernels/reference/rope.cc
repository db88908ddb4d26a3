#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::rope(Tensor x, int64_t head_dim, Tensor cos, Tensor sin) const {
  check_rope(x, head_dim, cos, sin);
  const int64_t half = cos.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t first = 0; first < x.cols; first += head_dim) {
      float* head = x.row<float>(r) + first;
      for (int64_t i = 0; i < half; ++i) {
        float c = cos.row<float>(r)[i], s = sin.row<float>(r)[i];
        float a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
      }
    }
  }
}

}  // namespace sluice
