#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos,
                            Tensor sin) const {
  check_rope(x, head_dim, cos, sin);
  const int64_t half = cos.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t at = 0; at < x.cols; at += head_dim) {
      float* head = x.row<float>(r) + at;
      for (int64_t i = 0; i < half; ++i) {
        float c = cos.row<float>(r)[i], s = sin.row<float>(r)[i];
        float& first = pairing == RopePairing::halves ? head[i] : head[2 * i];
        float& second = pairing == RopePairing::halves ? head[i + half] : head[2 * i + 1];
        float a = first, b = second;
        first = a * c - b * s;
        second = b * c + a * s;
      }
    }
  }
}

}  // namespace sluice
