#include "src/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Tokens so many nats below the likeliest have no weight that float64 could add to its.
constexpr double kReach = 80;

constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

template <class... Args>
[[noreturn]] void fail_sampling(ErrorKind kind, fmt::format_string<Args...> format,
                                Args&&... args) {
  throw SamplingError(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The id of the largest logit; the lowest id among equals.
int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

void check_finite_logits(double largest) {
  if (std::isnan(largest)) {
    fail_sampling(ErrorKind::runtime,
                  "the model's logits hold a NaN: its weights are damaged or overflowed");
  }
  if (!std::isfinite(largest))
    fail_sampling(ErrorKind::runtime, "the model's logits are not finite: its weights are damaged");
}

void Sampler::Scratch::reserve(int64_t vocab_size) {
  const auto tokens = static_cast<size_t>(vocab_size);
  counter.reserve(tokens);
  candidates.reserve(tokens);
  raw_logits.reserve(tokens);
}

uint64_t Sampler::Scratch::bytes(int64_t vocab_size) {
  constexpr uint64_t kAlignment = 3 * alignof(std::max_align_t);
  return static_cast<uint64_t>(vocab_size) *
             (sizeof(uint32_t) + sizeof(Candidate) + sizeof(float)) +
         kAlignment;
}

bool Sampler::needs_scratch(const SamplingParams& p) {
  return p.temperature > 0 || p.repetition_penalty != 1 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0;
}

Sampler::Sampler(const SamplingParams& params, std::vector<int32_t> eos_ids,
                 std::shared_ptr<Scratch> scratch)
    : params_(params),
      allowed_(params.allowed_token_ids.value_or(std::vector<int32_t>())),
      ends_(std::move(eos_ids)),
      random_(params.seed),
      scratch_(std::move(scratch)) {
  check_sampling(params);
  check(scratch_ != nullptr || !needs_scratch(params), "a sampler without its scratch");
  std::ranges::sort(allowed_);
  allowed_.erase(std::ranges::unique(allowed_).begin(), allowed_.end());
  ends_.insert(ends_.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
}

bool Sampler::changes_logits(const TokenHistory& history) const {
  const SamplingParams& p = params_;
  const bool drops = history.mask != nullptr || p.allowed_token_ids ||
                     !p.banned_token_ids.empty() || p.no_repeat_ngram_size > 0 ||
                     std::ssize(history.generated()) < p.min_tokens;
  return drops || !p.logit_bias.empty() || p.repetition_penalty != 1 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0;
}

bool Sampler::takes_likeliest(const TokenHistory& history) const {
  return params_.temperature == 0 && !changes_logits(history);
}

// One more than top_k tells whether there are more.
bool Sampler::takes_top(const TokenHistory& history, int64_t known) const {
  return params_.temperature > 0 && params_.top_k > 0 && params_.top_k < known &&
         !changes_logits(history);
}

int32_t Sampler::take(const TokenLogit& likeliest) {
  check_finite_logits(likeliest.logit);
  return likeliest.id;
}

int32_t Sampler::sample_top(std::span<TokenLogit> top) {
  std::ranges::sort(top, {}, &TokenLogit::id);  // the order of sums over candidates
  float most = -std::numeric_limits<float>::infinity();
  for (const TokenLogit& t : top) most = std::isnan(t.logit) ? t.logit : std::max(most, t.logit);
  check_finite_logits(most);
  candidates().clear();
  for (const TokenLogit& t : top) add_candidate(t.logit, t.id, most, kReach * params_.temperature);
  narrow_candidates(most);
  return draw();
}

int32_t Sampler::sample(std::span<float> logits, const TokenHistory& history) {
  int32_t best = process(logits, history);
  if (params_.temperature == 0) return best;
  find_candidates(logits, logits[static_cast<size_t>(best)], kReach * params_.temperature);
  return draw();
}

std::vector<TokenProbability> Sampler::distribution(std::span<float> logits,
                                                    const TokenHistory& history) {
  int32_t best = process(logits, history);
  float most = logits[static_cast<size_t>(best)];
  if (params_.temperature == 0) return {{best, most, 1}};
  find_candidates(logits, most, kInfinity);
  std::vector<TokenProbability> tokens;
  tokens.reserve(candidates().size());
  double total = total_weight();
  auto temperature = static_cast<float>(params_.temperature);
  for (const Candidate& c : candidates())
    tokens.push_back({c.id, c.logit / temperature, c.weight / total});
  return tokens;
}

// Everything before the temperature; returns the likeliest token.
int32_t Sampler::process(std::span<float> logits, const TokenHistory& history) {
  const SamplingParams& p = params_;
  check_finite_logits(likeliest(logits).logit);
  if (history.mask != nullptr) keep_allowed(logits, *history.mask, ends_);
  if (p.allowed_token_ids) keep_tokens(logits, allowed_);
  drop_tokens(logits, p.banned_token_ids);
  if (std::ssize(history.generated()) < p.min_tokens) drop_tokens(logits, ends_);
  add_logit_bias(logits, p.logit_bias);
  if (p.repetition_penalty != 1)
    penalize_repetition(logits, history.ids, p.repetition_penalty, scratch_->counter);
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    penalize_occurrences(logits, history.generated(), p.presence_penalty, p.frequency_penalty,
                         scratch_->counter);
  }
  drop_repeated_ngrams(logits, history.ids, p.no_repeat_ngram_size);

  int32_t best = argmax(logits);
  float most = logits[static_cast<size_t>(best)];
  if (most == -kInfinity) {
    fail_sampling(
        ErrorKind::usage,
        "no token is allowed after {} generated tokens: {}allowed_token_ids, banned_token_ids, "
        "min_tokens and no_repeat_ngram_size together exclude all",
        history.generated().size(), history.mask != nullptr ? "the grammar, " : "");
  }
  if (!std::isfinite(most)) {
    fail_sampling(ErrorKind::usage, "repetition_penalty {}: so small that a logit overflows",
                  p.repetition_penalty);
  }
  return best;
}

// `reach`: how far below the largest logit a token may be to be considered at all.
void Sampler::add_candidate(float logit, int32_t id, float most, double reach) {
  if (most - logit <= reach && logit != -kInfinity) candidates().push_back({logit, id, 0});
}

void Sampler::find_candidates(std::span<const float> logits, float most, double reach) {
  candidates().clear();
  for (size_t i = 0; i < logits.size(); ++i)
    add_candidate(logits[i], static_cast<int32_t>(i), most, reach);
  narrow_candidates(most);
}

// Temperature, top-k, top-p, min-p and typical-p, in this order. Probabilities are compared in
// float32, as transformers does: there those that ought to be equal mostly are.
void Sampler::narrow_candidates(float most) {
  if (params_.top_k > 0 && std::ssize(candidates()) > params_.top_k) keep_top_k();
  for (Candidate& c : candidates()) c.weight = std::exp((c.logit - most) / params_.temperature);
  if (params_.top_p < 1) keep_top_p();
  auto least = static_cast<float>(params_.min_p);
  std::erase_if(candidates(),
                [&](const Candidate& c) { return static_cast<float>(c.weight) < least; });
  if (params_.typical_p < 1) keep_typical(most);
}

double Sampler::total_weight() {
  double total = 0;
  for (const Candidate& c : candidates()) total += c.weight;
  return total;
}

// Asks keep(candidate) in the order `before` until it says no, and returns how many it kept. Sorts
// only as many as that takes, and some more; the others follow in no order.
template <class Order, class Keep>
size_t Sampler::sort_while(Order before, Keep keep) {
  size_t sorted = 0;
  for (size_t i = 0; i < candidates().size(); ++i) {
    if (i == sorted) {
      sorted = std::min(candidates().size(), sorted + std::max<size_t>(64, 3 * sorted));
      auto at = [&](size_t n) { return candidates().begin() + static_cast<std::ptrdiff_t>(n); };
      std::partial_sort(at(i), at(sorted), candidates().end(), before);
    }
    if (!keep(candidates()[i])) return i;
  }
  return candidates().size();
}

// The k likeliest, and all that are as likely as the last of them (TopKLogitsWarper).
void Sampler::keep_top_k() {
  auto last = candidates().begin() + (params_.top_k - 1);
  std::nth_element(candidates().begin(), last, candidates().end(), kLikelier);
  float least = last->logit;
  std::erase_if(candidates(), [&](const Candidate& c) { return c.logit < least; });
  std::ranges::sort(candidates(), kLikelier);
}

// The likeliest candidates, until they have top_p of all probability (TopPLogitsWarper). That drops
// from the other end, the least likely and among equals the lowest id first, while what it has
// dropped is at most 1 - top_p. (Among equals torch's sort has no fixed order in rows of more than
// 16 tokens; this is the order of shorter ones, and of its stable sort.)
void Sampler::keep_top_p() {
  double total = total_weight();
  auto dropped_at_most = static_cast<float>(1 - params_.top_p);
  double kept = 0;
  size_t count = sort_while(kLikelier, [&](const Candidate& c) {
    if (kept > 0 && static_cast<float>(1 - kept / total) <= dropped_at_most) return false;
    kept += c.weight;
    return true;
  });
  float least = candidates()[count - 1].logit;
  auto is_edge = [&](const Candidate& c) { return c.logit == least; };
  auto kept_end = candidates().begin() + static_cast<std::ptrdiff_t>(count);
  auto kept_of_edge = std::count_if(candidates().begin(), kept_end, is_edge);
  std::erase_if(candidates(), [&](const Candidate& c) { return c.logit < least; });
  auto edge = std::ranges::find_if(candidates(), is_edge);
  std::sort(edge, candidates().end(), kLikelier);
  candidates().erase(edge, candidates().end() - kept_of_edge);
}

// The candidates whose surprise, -log p, is nearest to the expected one, the entropy, until they
// have typical_p of all probability, and all as near as the last of them (TypicalLogitsWarper;
// Meister et al., "Locally Typical Sampling", 2022).
void Sampler::keep_typical(float most) {
  double total = total_weight();
  auto log_weight = [&](const Candidate& c) { return (c.logit - most) / params_.temperature; };
  double entropy = std::log(total);
  for (const Candidate& c : candidates()) {
    if (c.weight > 0) entropy -= c.weight / total * log_weight(c);
  }
  double expected = std::log(total) - entropy;  // of log_weight
  auto distance = [&](const Candidate& c) { return std::abs(log_weight(c) - expected); };
  auto nearer = [&](const Candidate& a, const Candidate& b) {
    double of_a = distance(a), of_b = distance(b);
    return of_a != of_b ? of_a < of_b : a.id < b.id;
  };
  double kept = 0;
  size_t count = sort_while(nearer, [&](const Candidate& c) {
    if (static_cast<float>(kept / total) >= static_cast<float>(params_.typical_p)) return false;
    kept += c.weight;
    return true;
  });
  double farthest = distance(candidates()[count - 1]);
  std::erase_if(candidates(), [&](const Candidate& c) { return distance(c) > farthest; });
  std::ranges::sort(candidates(), kLikelier);
}

int32_t Sampler::draw() {
  // 53 random bits, the same on every platform (distributions of the standard library are not).
  double target = static_cast<double>(random_() >> 11) * 0x1p-53 * total_weight();
  for (const Candidate& c : candidates()) {
    target -= c.weight;
    if (target < 0) return c.id;
  }
  return candidates().back().id;
}

}  // namespace sluice
