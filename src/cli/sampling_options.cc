#include "src/cli/sampling_options.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/cli/common.h"

namespace sluice::cli {
namespace {

// "5=1.5,7=-100"
std::map<int32_t, float> parse_logit_bias(const std::string& text) {
  std::map<int32_t, float> bias;
  for (std::string_view item : split_text(text, ',')) {
    const auto id = parse_number<int32_t>(take_until(item, '='));
    const auto added = parse_number<float>(item);
    if (!id || !added)
      fail(ErrorKind::usage, "--logit-bias {}: not a list of biases such as 5=1.5,7=-100", text);
    if (!bias.emplace(*id, *added).second)
      fail(ErrorKind::usage, "--logit-bias {}: token id {} is there twice", text, *id);
  }
  return bias;
}

// Says in the library's words that a text is no seed; the library itself reads -1, and what is too
// large, as the largest number.
std::string is_seed(const std::string& text) {
  if (parse_number<uint64_t>(text)) return {};
  return fmt::format("Value {} not in range 0 to {}", text, std::numeric_limits<uint64_t>::max());
}

}  // namespace

void add_sampling_options(CLI::App& verb, SamplingOptions& o) {
  SamplingParams& p = o.params;
  verb.add_option("--temperature", p.temperature,
                  "Sample at this temperature; 0: always take the likeliest token");
  verb.add_option("--top-k", p.top_k, "Sample from this many likeliest tokens; 0: off");
  verb.add_option("--top-p", p.top_p,
                  "Sample from the likeliest tokens that together reach this probability");
  verb.add_option("--min-p", p.min_p,
                  "Drop tokens below this share of the likeliest one's probability");
  verb.add_option("--typical-p", p.typical_p,
                  "Sample from tokens nearest to the expected surprise that together reach this "
                  "probability");
  verb.add_option("--repetition-penalty", p.repetition_penalty,
                  "Make tokens of the prompt and the continuation less likely where above 1");
  verb.add_option("--presence-penalty", p.presence_penalty,
                  "Subtract this from the logits of generated tokens");
  verb.add_option("--frequency-penalty", p.frequency_penalty,
                  "Subtract this for each occurrence of a generated token");
  verb.add_option("--no-repeat-ngram-size", p.no_repeat_ngram_size,
                  "Generate no sequence of this many tokens twice; 0: off");
  verb.add_option("--logit-bias", o.logit_bias, "Add to the logits of tokens: 5=1.5,7=-100");
  verb.add_option("--allowed-token-ids", o.allowed_token_ids, "Generate only these tokens: 1,2,3");
  verb.add_option("--banned-token-ids", o.banned_token_ids, "Never generate these tokens: 1,2,3");
  verb.add_option("--min-tokens", p.min_tokens,
                  "Generate at least this many tokens before an end-of-sequence or stop token");
  verb.add_option("--stop-token-ids", o.stop_token_ids,
                  "End with one of these tokens, like an end-of-sequence token: 1,2,3");
  verb.add_option("--seed", p.seed, "Seed the random numbers: the same seed gives the same tokens")
      ->check(is_seed);
  verb.add_option("--logprobs", p.logprobs,
                  "Print, with --json, the logarithm of each token's probability and this many "
                  "likeliest tokens at its position");
}

SamplingParams sampling_params(const SamplingOptions& o) {
  SamplingParams params = o.params;
  if (o.logit_bias) params.logit_bias = parse_logit_bias(*o.logit_bias);
  if (o.allowed_token_ids)
    params.allowed_token_ids = parse_token_ids(*o.allowed_token_ids, "--allowed-token-ids");
  if (o.banned_token_ids)
    params.banned_token_ids = parse_token_ids(*o.banned_token_ids, "--banned-token-ids");
  if (o.stop_token_ids)
    params.stop_token_ids = parse_token_ids(*o.stop_token_ids, "--stop-token-ids");
  return params;
}

}  // namespace sluice::cli
