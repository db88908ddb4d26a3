// Processors of a row of logits before the temperature. Each works in place; a token that it drops
// gets the logit -inf. Ids outside of the row are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

namespace sluice {

// The tokens that a grammar lets come next.
struct TokenMask {
  std::span<const uint64_t> bits;  // bit id % 64 of word id / 64
  bool may_end = false;            // tokens that end the sequence are allowed
};

// The tokens before the one that is to be sampled.
struct TokenHistory {
  std::span<const int32_t> ids;     // prompt and continuation
  size_t prompt_size = 0;           // the rest was generated
  const TokenMask* mask = nullptr;  // of the next one; null: there is no grammar

  std::span<const int32_t> generated() const { return ids.subspan(prompt_size); }
};

// The different ids of a list and how often each is there, in time linear in the list. Its memory
// is one number a token of the vocabulary, kept from call to call.
class TokenCounter {
 public:
  explicit TokenCounter(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : counts_(memory) {}
  void reserve(size_t vocab_size) { counts_.reserve(vocab_size); }
  // visit(id, count) for each different id in [0, vocab_size).
  template <class Visit>
  void each(std::span<const int32_t> ids, size_t vocab_size, Visit visit) {
    if (counts_.size() < vocab_size) counts_.resize(vocab_size);
    auto known = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < vocab_size; };
    for (int32_t id : ids) {
      if (known(id)) ++counts_[static_cast<size_t>(id)];
    }
    for (int32_t id : ids) {
      if (!known(id)) continue;
      uint32_t count = std::exchange(counts_[static_cast<size_t>(id)], 0);
      if (count > 0) visit(id, count);
    }
  }

 private:
  std::pmr::vector<uint32_t> counts_;  // all zero between calls
};

// vLLM's allowed_token_ids: drops every other token. `ids` ascend and differ.
void keep_tokens(std::span<float> logits, std::span<const int32_t> ids);

// Drops what a grammar does not let come next. `ends`, which end the sequence, are dropped unless
// it may end there, whatever their texts are.
void keep_allowed(std::span<float> logits, const TokenMask& mask, std::span<const int32_t> ends);

// transformers' SuppressTokensLogitsProcessor, vLLM's bad_words of one token.
void drop_tokens(std::span<float> logits, std::span<const int32_t> ids);

// vLLM's logit_bias, transformers' SequenceBiasLogitsProcessor for single tokens.
void add_logit_bias(std::span<float> logits, const std::map<int32_t, float>& bias);

// transformers' RepetitionPenaltyLogitsProcessor (Keskar et al., "CTRL", 2019): the logit of each
// different id is divided by the penalty where it is positive, multiplied where it is negative.
void penalize_repetition(std::span<float> logits, std::span<const int32_t> ids, double penalty,
                         TokenCounter& counter);

// The presence and frequency penalties of OpenAI and vLLM: presence + frequency * count is
// subtracted from the logit of each different id.
void penalize_occurrences(std::span<float> logits, std::span<const int32_t> ids, double presence,
                          double frequency, TokenCounter& counter);

// transformers' NoRepeatNGramLogitsProcessor: drops what followed the last n - 1 ids wherever they
// stood before. Linear in `ids`, whatever n is.
void drop_repeated_ngrams(std::span<float> logits, std::span<const int32_t> ids, int64_t n);

}  // namespace sluice
