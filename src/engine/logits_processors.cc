#include "src/engine/logits_processors.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

constexpr float kDropped = -std::numeric_limits<float>::infinity();

// The logit of a token; null where the row has none.
float* logit_of(std::span<float> logits, int32_t id) {
  bool known = id >= 0 && static_cast<size_t>(id) < logits.size();
  return known ? &logits[static_cast<size_t>(id)] : nullptr;
}

}  // namespace

void keep_tokens(std::span<float> logits, std::span<const int32_t> ids) {
  size_t next = 0;  // ids below it are done
  for (int32_t id : ids) {
    if (logit_of(logits, id) == nullptr) continue;
    auto kept = static_cast<size_t>(id);
    std::ranges::fill(logits.subspan(next, kept - next), kDropped);
    next = kept + 1;
  }
  std::ranges::fill(logits.subspan(next), kDropped);
}

void keep_allowed(std::span<float> logits, const TokenMask& mask, std::span<const int32_t> ends) {
  constexpr size_t kBits = 64;
  std::vector<float> of_ends;
  for (int32_t id : ends) {
    const float* logit = logit_of(logits, id);
    of_ends.push_back(mask.may_end && logit != nullptr ? *logit : kDropped);
  }
  const size_t known = std::min(logits.size(), mask.bits.size() * kBits);
  for (size_t begin = 0; begin < known; begin += kBits) {
    const uint64_t word = mask.bits[begin / kBits];
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(begin + kBits, known);
    for (size_t id = begin; id < end; ++id)
      logits[id] = (word >> (id - begin) & 1) != 0 ? logits[id] : kDropped;
  }
  std::ranges::fill(logits.subspan(known), kDropped);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (float* logit = logit_of(logits, ends[i])) *logit = of_ends[i];
  }
}

void drop_tokens(std::span<float> logits, std::span<const int32_t> ids) {
  for (int32_t id : ids) {
    if (float* logit = logit_of(logits, id)) *logit = kDropped;
  }
}

void add_logit_bias(std::span<float> logits, const std::map<int32_t, float>& bias) {
  for (auto [id, added] : bias) {
    if (float* logit = logit_of(logits, id)) *logit += added;
  }
}

void penalize_repetition(std::span<float> logits, std::span<const int32_t> ids, double penalty,
                         TokenCounter& counter) {
  auto p = static_cast<float>(penalty);
  counter.each(ids, logits.size(), [&](int32_t id, uint32_t) {
    float& logit = logits[static_cast<size_t>(id)];
    if (logit != kDropped) logit = logit < 0 ? logit * p : logit / p;
  });
}

void penalize_occurrences(std::span<float> logits, std::span<const int32_t> ids, double presence,
                          double frequency, TokenCounter& counter) {
  counter.each(ids, logits.size(), [&](int32_t id, uint32_t count) {
    float& logit = logits[static_cast<size_t>(id)];
    logit -= static_cast<float>(presence + frequency * count);
  });
}

void drop_repeated_ngrams(std::span<float> logits, std::span<const int32_t> ids, int64_t n) {
  if (n <= 0 || std::ssize(ids) < n) return;
  std::span<const int32_t> last = ids.last(static_cast<size_t>(n - 1));
  // The search of Knuth, Morris and Pratt: border[i] is the longest beginning of `last`, shorter
  // than i + 1, that also ends at i.
  std::vector<size_t> border(last.size());
  auto matched_with = [&](size_t matched, int32_t id) {
    while (matched > 0 && (matched == last.size() || last[matched] != id))
      matched = border[matched - 1];
    return matched < last.size() && last[matched] == id ? matched + 1 : matched;
  };
  for (size_t i = 1; i < last.size(); ++i) border[i] = matched_with(border[i - 1], last[i]);
  size_t matched = 0;
  for (int32_t id : ids) {
    float* logit = logit_of(logits, id);
    if (matched == last.size() && logit != nullptr) *logit = kDropped;
    matched = matched_with(matched, id);
  }
}

}  // namespace sluice
