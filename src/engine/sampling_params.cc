#include "src/engine/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>

#include "src/base/error.h"

namespace sluice {
namespace {

// OpenAI's bounds, which vLLM shares.
constexpr double kMaxPenalty = 2;
constexpr float kMaxBias = 100;

void check_penalty(const char* option, double value) {
  if (!(std::abs(value) <= kMaxPenalty))
    fail(ErrorKind::usage, "{} must be between -{} and {}", option, kMaxPenalty, kMaxPenalty);
}

void check_filters(const SamplingParams& p) {
  if (!(p.temperature >= 0) || std::isinf(p.temperature))
    fail(ErrorKind::usage, "temperature must be 0 or above");
  if (p.top_k < 0) fail(ErrorKind::usage, "top_k must be 0 (off) or above");
  if (!(p.top_p > 0 && p.top_p <= 1)) fail(ErrorKind::usage, "top_p must be above 0 and at most 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) fail(ErrorKind::usage, "min_p must be between 0 and 1");
  if (!(p.typical_p > 0 && p.typical_p <= 1))
    fail(ErrorKind::usage, "typical_p must be above 0 and at most 1");
}

void check_penalties(const SamplingParams& p) {
  auto penalty = static_cast<float>(p.repetition_penalty);  // as it is applied
  if (!(penalty > 0) || std::isinf(penalty)) {
    fail(ErrorKind::usage,
         "repetition_penalty must be above 0 (1: off) and below 3.4e38, where float32 ends, but is "
         "{}",
         p.repetition_penalty);
  }
  check_penalty("presence_penalty", p.presence_penalty);
  check_penalty("frequency_penalty", p.frequency_penalty);
  if (p.no_repeat_ngram_size < 0)
    fail(ErrorKind::usage, "no_repeat_ngram_size must be 0 (off) or above");
  for (auto [id, bias] : p.logit_bias) {
    if (!(std::abs(bias) <= kMaxBias)) {
      fail(ErrorKind::usage, "logit_bias {}={}: a bias must be between -{} and {}", id, bias,
           kMaxBias, kMaxBias);
    }
  }
}

void check_lists(const SamplingParams& p) {
  if (p.min_tokens < 0) fail(ErrorKind::usage, "min_tokens must be 0 (off) or above");
  if (p.logprobs && *p.logprobs < 0)
    fail(ErrorKind::usage, "logprobs must be 0 (of the token itself only) or above");
  if (p.prompt_logprobs && *p.prompt_logprobs < 0)
    fail(ErrorKind::usage, "prompt_logprobs must be 0 (of the tokens themselves only) or above");
  if (!p.allowed_token_ids) return;
  if (p.allowed_token_ids->empty())
    fail(ErrorKind::usage, "allowed_token_ids must name at least one token");
  std::set<int32_t> left(p.allowed_token_ids->begin(), p.allowed_token_ids->end());
  for (int32_t id : p.banned_token_ids) left.erase(id);
  if (left.empty()) {
    fail(ErrorKind::usage,
         "allowed_token_ids: each of them is one of banned_token_ids, so that no token is left");
  }
}

template <class Ids>
void check_ids(const char* option, const Ids& ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      fail(ErrorKind::usage, "{}: token id {} is not in the model's vocabulary of {}", option, id,
           vocab_size);
    }
  }
}

}  // namespace

void check_sampling(const SamplingParams& params) {
  check_filters(params);
  check_penalties(params);
  check_lists(params);
}

void check_sampling(const SamplingParams& p, int64_t vocab_size) {
  check_sampling(p);
  check_ids("logit_bias", std::views::keys(p.logit_bias), vocab_size);
  if (p.allowed_token_ids) check_ids("allowed_token_ids", *p.allowed_token_ids, vocab_size);
  check_ids("banned_token_ids", p.banned_token_ids, vocab_size);
  check_ids("stop_token_ids", p.stop_token_ids, vocab_size);
  int64_t logprobs = std::max(p.logprobs.value_or(0), p.prompt_logprobs.value_or(0));
  if (logprobs > vocab_size) {
    fail(ErrorKind::usage, "logprobs {}: the model's vocabulary has {} tokens", logprobs,
         vocab_size);
  }
}

}  // namespace sluice
