#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

// NaN is the largest.
bool above(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

// Returns how many logits of the row are at least x.
int64_t at_least(std::span<const float> row, float x) {
  return std::ranges::count_if(row, [&](float l) { return !above(x, l); });
}

// The k-th largest, or the smallest of fewer.
float least_of_top(std::span<const float> row, int64_t k) {
  float least = std::numeric_limits<float>::quiet_NaN();
  while (at_least(row, least) < std::min<int64_t>(k, std::ssize(row))) {
    float next = -std::numeric_limits<float>::infinity();  // the largest below it
    for (float l : row) next = above(least, l) && above(l, next) ? l : next;
    least = next;
  }
  return least;
}

}  // namespace

void ReferenceKernels::top_logits(Tensor logits, int64_t k, const TopLogits& out) const {
  check_top_logits(logits, k, out);
  for (int64_t r = 0; r < logits.rows; ++r) {
    const std::span<const float> row{logits.row<float>(r), static_cast<size_t>(logits.cols)};
    const float least = least_of_top(row, k);
    int32_t count = 0;
    for (int64_t c = 0; c < logits.cols; ++c) {
      const float logit = row[static_cast<size_t>(c)];
      if (above(least, logit)) continue;
      if (count < out.most) out.tokens[r * out.most + count] = {logit, static_cast<int32_t>(c)};
      ++count;
    }
    out.counts[r] = count;
  }
}

}  // namespace sluice
