#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

// NaN is the largest.
bool above(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

// The k-th largest, or the smallest of fewer. `heap` has room for k, the smallest first.
float least_of_top(std::span<const float> row, int64_t k, TokenLogit* heap) {
  auto larger = [](const TokenLogit& a, const TokenLogit& b) { return above(a.logit, b.logit); };
  const auto first = static_cast<size_t>(std::min(k, std::ssize(row)));
  TokenLogit* end = heap + first;
  for (size_t i = 0; i < first; ++i) heap[i] = {row[i], 0};
  std::make_heap(heap, end, larger);
  for (float logit : row.subspan(first)) {
    if (logit <= heap->logit) continue;  // almost all; what else is not above it goes no farther
    if (!above(logit, heap->logit)) continue;
    std::pop_heap(heap, end, larger);
    end[-1].logit = logit;
    std::push_heap(heap, end, larger);
  }
  return heap->logit;
}

}  // namespace

void CpuKernels::top_logits(Tensor logits, int64_t k, const TopLogits& out) const {
  check_top_logits(logits, k, out);
  for_rows(logits, [&](int64_t r) {
    const std::span<const float> row{logits.row<float>(r), static_cast<size_t>(logits.cols)};
    TokenLogit* tokens = out.tokens + r * out.most;
    const float least = least_of_top(row, k, tokens);
    int32_t count = 0;
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] < least || above(least, row[c])) continue;
      if (count < out.most) tokens[count] = {row[c], static_cast<int32_t>(c)};
      ++count;
    }
    out.counts[r] = count;
  });
}

}  // namespace sluice
