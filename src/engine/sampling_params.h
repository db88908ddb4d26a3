// The sampling parameters of a request. Names and meanings are those of Hugging Face transformers
// and of vLLM.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "src/grammar/grammars.h"

namespace sluice {

struct SamplingParams {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // the k likeliest and what equals the k-th; 0: off
  double top_p = 1;        // keep the fewest tokens whose probabilities reach it
  double min_p = 0;      // keep tokens with at least this share of the likeliest one's probability
  double typical_p = 1;  // keep so much probability, the nearest to the expected surprise first

  double repetition_penalty = 1;     // for tokens of prompt and continuation; above 1: fewer
  double presence_penalty = 0;       // subtracted once from generated tokens
  double frequency_penalty = 0;      // subtracted for each occurrence
  int64_t no_repeat_ngram_size = 0;  // no n tokens in a row a second time; 0: off

  std::map<int32_t, float> logit_bias = {};                    // is added to the logit of an id
  std::optional<std::vector<int32_t>> allowed_token_ids = {};  // these only
  std::vector<int32_t> banned_token_ids = {};                  // never these
  // End the sequence as eos does, and where eos is ignored.
  std::vector<int32_t> stop_token_ids = {};
  // A grammar that the continuation has to match; null: none. The continuation may end only where
  // its text matches.
  std::shared_ptr<const grammar::TokenGrammar> grammar = {};
  int64_t min_tokens = 0;  // no token ends the sequence before this many are generated

  std::optional<int64_t> logprobs = {};  // report each token's, and those of this many likeliest
  std::optional<int64_t> prompt_logprobs = {};  // and of the prompt's tokens after its first
  uint64_t seed = 0;

  bool operator==(const SamplingParams&) const = default;
};

// Throws Error(usage) that names the option whose value is out of range.
void check_sampling(const SamplingParams& params);
// Checks the parameters, also for token ids, and numbers of tokens, that a model with this
// vocabulary does not have.
void check_sampling(const SamplingParams& params, int64_t vocab_size);

}  // namespace sluice
