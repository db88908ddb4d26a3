// Natural logarithms of tokens' probabilities, from the model's own logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

struct Logprob {
  int32_t token_id = 0;
  double logprob = 0;
};

// A token that was generated, and the likeliest ones at its place, which may not have it.
struct TokenLogprobs {
  Logprob token;
  std::vector<Logprob> top;  // falling; the lower id first among equals
};

// Bytes of a list of `tokens` TokenLogprobs, each with `top` likeliest tokens; 0 without `top`.
uint64_t logprob_bytes(std::optional<int64_t> top, uint64_t tokens);

double log_probability(std::span<const float> logits, int32_t id);

// Returns logprobs of the logits before any of SamplingParams changed them, as vLLM does.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t top);

}  // namespace sluice
