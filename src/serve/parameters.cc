#include "src/serve/parameters.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "src/base/error.h"

namespace sluice {
namespace {

enum class Use : uint8_t {
  read,     // by parse_completion
  ignored,  // says nothing about the answer
  nothing,  // may only ask for nothing: false, "", [], {}, or what is there without it
};

struct Parameter {
  std::string_view name;
  Use use = Use::read;
  std::string_view without = {};  // JSON of what is there without the parameter
};

constexpr Parameter kParameters[] = {
    // OpenAI's.
    {"best_of"},
    {"echo"},
    {"frequency_penalty"},
    {"logit_bias"},
    {"logprobs"},
    {"max_completion_tokens"},
    {"max_tokens"},
    {"model"},
    {"n"},
    {"presence_penalty"},
    {"prompt"},
    {"response_format"},
    {"seed"},
    {"stop"},
    {"temperature"},
    {"top_p"},
    {"metadata", Use::ignored},
    {"prompt_cache_key", Use::ignored},
    {"prompt_cache_retention", Use::ignored},
    {"safety_identifier", Use::ignored},
    {"service_tier", Use::ignored},
    {"store", Use::ignored},
    {"user", Use::ignored},
    {"stream", Use::nothing},
    {"stream_options", Use::nothing},
    {"suffix", Use::nothing},
    // vLLM's.
    {"add_special_tokens"},
    {"allowed_token_ids"},
    {"guided_choice"},
    {"guided_grammar"},
    {"guided_json"},
    {"guided_regex"},
    {"ignore_eos"},
    {"length_penalty"},
    {"min_p"},
    {"min_tokens"},
    {"priority"},
    {"prompt_logprobs"},
    {"repetition_penalty"},
    {"skip_special_tokens"},
    {"stop_token_ids"},
    {"structured_outputs"},
    {"top_k"},
    {"use_beam_search"},
    {"cache_salt", Use::ignored},
    {"request_id", Use::ignored},
    {"return_token_ids", Use::ignored},               // are there always
    {"spaces_between_special_tokens", Use::ignored},  // none are put there, as by fast tokenizers
    {"bad_words", Use::nothing},
    {"detokenize", Use::nothing, "true"},
    {"guided_decoding_backend", Use::nothing},
    {"guided_whitespace_pattern", Use::nothing},
    {"include_stop_str_in_output", Use::nothing},
    {"kv_transfer_params", Use::nothing},
    {"logits_processors", Use::nothing},
    {"prompt_embeds", Use::nothing},
    {"return_tokens_as_token_ids", Use::nothing},
    {"truncate_prompt_tokens", Use::nothing},
    {"vllm_xargs", Use::nothing},
    // transformers'.
    {"banned_token_ids"},
    {"no_repeat_ngram_size"},
    {"typical_p"},
};

bool asks_for_nothing(const Parameter& parameter, const Json& value) {
  if (value == Json(false) || value == Json("")) return true;
  if (value.is_structured() && value.empty()) return true;
  return !parameter.without.empty() && value == Json::parse(parameter.without);
}

}  // namespace

void check_parameters(const Json& body, const std::string& where) {
  for (const auto& [key, value] : body.items()) {
    if (value.is_null()) continue;
    const auto* known = std::ranges::find(kParameters, key, &Parameter::name);
    if (known == std::end(kParameters))
      fail(ErrorKind::refused, "{}: {} is not a parameter that is known here", where, key);
    if (known->use == Use::nothing && !asks_for_nothing(*known, value))
      fail(ErrorKind::refused, "{}: {} is not supported here", where, key);
  }
}

}  // namespace sluice
