#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::likeliest(Tensor logits, std::span<TokenLogit> out) const {
  check_likeliest(logits);
  for (int64_t r = 0; r < logits.rows; ++r) {
    const float* row = logits.row<float>(r);
    TokenLogit best{row[0], 0};
    for (int64_t c = 1; c < logits.cols; ++c) {
      if (row[c] > best.logit) best = {row[c], static_cast<int32_t>(c)};
    }
    for (int64_t c = 0; c < logits.cols; ++c) {
      if (std::isnan(row[c])) best = {row[c], 0};
    }
    out[static_cast<size_t>(r)] = best;
  }
}

}  // namespace sluice
