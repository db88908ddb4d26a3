#include "src/engine/logprobs.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// Turns logits into logarithms of probabilities: log p = (logit - most) - log_sum.
struct LogNormalizer {
  double most;
  double log_sum;

  explicit LogNormalizer(std::span<const float> logits) : most(*std::ranges::max_element(logits)) {
    double sum = 0;
    for (float l : logits) sum += std::exp(l - most);
    log_sum = std::log(sum);
  }
  double operator()(float logit) const { return logit - most - log_sum; }
};

}  // namespace

double log_probability(std::span<const float> logits, int32_t id) {
  return LogNormalizer(logits)(logits[static_cast<size_t>(id)]);
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t top) {
  LogNormalizer normalized(logits);
  auto of = [&](int32_t token) {
    return Logprob{token, normalized(logits[static_cast<size_t>(token)])};
  };
  TokenLogprobs result{of(id), {}};
  top = std::min(top, std::ssize(logits));
  if (top <= 0) return result;
  // A heap of the likeliest so far, the least likely of them on top: no list of the vocabulary.
  auto likelier = [](const Logprob& a, const Logprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token_id < b.token_id;
  };
  int32_t token = 0;
  result.top.reserve(static_cast<size_t>(top));
  for (; token < top; ++token) result.top.push_back(of(token));
  std::ranges::make_heap(result.top, likelier);
  for (; token < std::ssize(logits); ++token) {
    Logprob next = of(token);
    if (!likelier(next, result.top.front())) continue;
    std::ranges::pop_heap(result.top, likelier);
    result.top.back() = next;
    std::ranges::push_heap(result.top, likelier);
  }
  std::ranges::sort(result.top, likelier);
  return result;
}

// A list that grows has its old and its new memory at once.
uint64_t logprob_bytes(std::optional<int64_t> top, uint64_t tokens) {
  constexpr uint64_t kAllocation = 16;
  if (!top) return 0;
  return tokens *
         (3 * sizeof(TokenLogprobs) + kAllocation + static_cast<uint64_t>(*top) * sizeof(Logprob));
}

}  // namespace sluice
