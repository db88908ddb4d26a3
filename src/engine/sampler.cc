#include "src/engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

}  // namespace

void check_sampling(const SamplingParams& p) {
  if (!(p.temperature >= 0) || std::isinf(p.temperature))
    fail(ErrorKind::usage, "--temperature must be 0 or above");
  if (p.top_k < 0) fail(ErrorKind::usage, "--top-k must be 0 (off) or above");
  if (!(p.top_p > 0 && p.top_p <= 1))
    fail(ErrorKind::usage, "--top-p must be above 0 and at most 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) fail(ErrorKind::usage, "--min-p must be between 0 and 1");
}

Sampler::Sampler(const SamplingParams& params) : params_(params), random_(params.seed) {
  check_sampling(params);
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_probability(std::span<const float> logits, int32_t id) {
  double most = logits[static_cast<size_t>(argmax(logits))];
  double sum = 0;
  for (float l : logits) sum += std::exp(l - most);
  return logits[static_cast<size_t>(id)] - most - std::log(sum);
}

int32_t Sampler::sample(std::span<const float> logits) {
  for (float l : logits) {
    if (std::isnan(l))
      fail(ErrorKind::runtime,
           "the model's logits hold a NaN: its weights are damaged or overflowed");
  }
  int32_t best = argmax(logits);
  float most = logits[static_cast<size_t>(best)];
  if (!std::isfinite(most))
    fail(ErrorKind::runtime, "the model's logits are not finite: its weights are damaged");
  if (params_.temperature == 0) return best;

  // Temperature, top-k, top-p, min-p, in this order (as transformers). Tokens far below the best
  // have no weight that float64 could add.
  double widest = 80 * params_.temperature;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (most - logits[i] <= widest) candidates_.push_back({logits[i], static_cast<int32_t>(i), 0});
  }
  if (params_.top_k > 0 && std::ssize(candidates_) > params_.top_k) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(),
                      kLikelier);
    candidates_.resize(static_cast<size_t>(params_.top_k));
  }
  for (Candidate& c : candidates_) c.weight = std::exp((c.logit - most) / params_.temperature);
  if (params_.top_p < 1) keep_top_p();
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params_.min_p; });

  // 53 random bits, the same on every platform (distributions of the standard library are not).
  double target = static_cast<double>(random_() >> 11) * 0x1p-53 * total_weight();
  for (const Candidate& c : candidates_) {
    target -= c.weight;
    if (target < 0) return c.id;
  }
  return candidates_.back().id;
}

double Sampler::total_weight() const {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  return total;
}

// The likeliest candidates, until they have top_p of all weight. Only as many are sorted as that
// takes, and some more.
void Sampler::keep_top_p() {
  double wanted = params_.top_p * total_weight();
  double kept = 0;
  auto sorted = candidates_.begin();
  auto end = candidates_.begin();
  while (end != candidates_.end() && kept < wanted) {
    if (end == sorted) {
      auto more = std::max<std::ptrdiff_t>(64, 3 * (sorted - candidates_.begin()));
      auto next = sorted + std::min(more, candidates_.end() - sorted);
      std::partial_sort(sorted, next, candidates_.end(), kLikelier);
      sorted = next;
    }
    kept += (end++)->weight;
  }
  candidates_.erase(end, candidates_.end());
}

}  // namespace sluice
