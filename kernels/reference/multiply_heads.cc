#include <algorithm>
#include <vector>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& m,
                                      HeadProduct product, Tensor y, int64_t y_step) const {
  check_multiply_heads(x, x_step, m, product, y, y_step);
  std::vector<float> w(static_cast<size_t>(m.weight.cols));
  const bool plain = product == HeadProduct::plain;
  const int64_t inputs = plain ? m.rows : m.weight.cols, outputs = plain ? m.weight.cols : m.rows;
  for (int64_t row = 0; row < m.weight.rows; ++row) {
    const int64_t head = (m.first_row + row) / m.rows, at = (m.first_row + row) % m.rows;
    if (head >= m.heads) return;  // the padding of the last panel
    decode_row(m.weight, row, w.data());
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* from = x.row<float>(r) + head * x_step;
      float* to = y.row<float>(r) + head * y_step;
      if (at == 0) std::copy_n(from + inputs, m.tail, to + outputs);
      double sum = 0;
      for (int64_t k = 0; k < m.weight.cols; ++k) {
        const float element = w[static_cast<size_t>(k)];
        if (plain) {
          to[k] = (at > 0 ? to[k] : 0) + from[at] * element;
        } else {
          sum += double{from[k]} * element;
        }
      }
      if (!plain) to[at] = static_cast<float>(sum);
    }
  }
}

}  // namespace sluice
