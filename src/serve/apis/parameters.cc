#include "src/serve/apis/parameters.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

enum class ParameterUse : uint8_t {
  read,     // by parse_completion
  ignored,  // says nothing about the answer
  nothing,  // may only ask for nothing: false, "", [], {}, or what is there without it
};

struct Parameter {
  std::string_view name;
  ParameterUse use = ParameterUse::read;
  std::string_view without = {};  // JSON of what is there without the parameter
};

// Parameters of every request.
constexpr Parameter kCommon[] = {
    // OpenAI's.
    {"frequency_penalty"},
    {"logit_bias"},
    {"logprobs"},
    {"max_completion_tokens"},
    {"max_tokens"},
    {"model"},
    {"n"},
    {"presence_penalty"},
    {"response_format"},
    {"seed"},
    {"stop"},
    {"temperature"},
    {"top_p"},
    {"metadata", ParameterUse::ignored},
    {"prompt_cache_key", ParameterUse::ignored},
    {"prompt_cache_retention", ParameterUse::ignored},
    {"safety_identifier", ParameterUse::ignored},
    {"service_tier", ParameterUse::ignored},
    {"store", ParameterUse::ignored},
    {"user", ParameterUse::ignored},
    // vLLM's.
    {"add_special_tokens"},
    {"allowed_token_ids"},
    {"bad_words"},
    {"guided_choice"},
    {"guided_grammar"},
    {"guided_json"},
    {"guided_regex"},
    {"ignore_eos"},
    {"include_stop_str_in_output"},
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
    {"cache_salt", ParameterUse::ignored},
    {"request_id", ParameterUse::ignored},
    {"return_token_ids"},
    {"spaces_between_special_tokens",
     ParameterUse::ignored},  // none are put there, as by fast tokenizers
    {"detokenize", ParameterUse::nothing, "true"},
    {"guided_decoding_backend", ParameterUse::ignored},
    {"guided_whitespace_pattern", ParameterUse::nothing},
    {"kv_transfer_params", ParameterUse::nothing},
    {"logits_processors", ParameterUse::nothing},
    {"prompt_embeds", ParameterUse::nothing},
    {"return_tokens_as_token_ids", ParameterUse::nothing},
    {"truncate_prompt_tokens", ParameterUse::nothing},
    {"vllm_xargs", ParameterUse::nothing},
    // transformers'.
    {"banned_token_ids"},
    {"no_repeat_ngram_size"},
    {"typical_p"},
};

constexpr Parameter kOfCompletions[] = {
    {"best_of"}, {"echo"}, {"length_penalty"}, {"prompt"}, {"suffix", ParameterUse::nothing},
};

constexpr Parameter kOfChats[] = {
    // OpenAI's.
    {"messages"},
    {"reasoning_effort"},
    {"tool_choice"},
    {"tools"},
    {"top_logprobs"},
    {"parallel_tool_calls"},
    {"audio", ParameterUse::nothing},
    {"function_call", ParameterUse::nothing, R"("none")"},
    {"functions", ParameterUse::nothing},
    {"modalities", ParameterUse::nothing, R"(["text"])"},
    {"prediction", ParameterUse::ignored},
    {"verbosity", ParameterUse::ignored},
    {"web_search_options", ParameterUse::nothing},
    // vLLM's.
    {"add_generation_prompt"},
    {"chat_template_kwargs"},
    {"documents"},
    {"chat_template", ParameterUse::nothing},
    {"continue_final_message"},
    {"echo", ParameterUse::nothing},
    {"include_reasoning", ParameterUse::nothing, "true"},
    {"length_penalty"},
    {"mm_processor_kwargs", ParameterUse::nothing},
};

// A file of requests has no streams.
constexpr Parameter kOfStreams[] = {{"stream"}, {"stream_options"}};
constexpr Parameter kWithoutStreams[] = {{"stream", ParameterUse::nothing},
                                         {"stream_options", ParameterUse::nothing}};

const Parameter* find(std::string_view name, Api api) {
  const std::span<const Parameter> own =
      api == Api::chat ? std::span<const Parameter>(kOfChats) : kOfCompletions;
  const std::span<const Parameter> streams =
      api == Api::batch ? std::span<const Parameter>(kWithoutStreams) : kOfStreams;
  for (std::span<const Parameter> list : {std::span<const Parameter>(kCommon), own, streams}) {
    auto found = std::ranges::find(list, name, &Parameter::name);
    if (found != list.end()) return &*found;
  }
  return nullptr;
}

bool asks_for_nothing(const Parameter& parameter, const OrderedJson& value) {
  return sluice::asks_for_nothing(value) ||
         (!parameter.without.empty() && value == OrderedJson::parse(parameter.without));
}

// Names the parameters that ask for the same here.
std::string_view instead_of(std::string_view parameter) {
  if (parameter == "functions") return "; send tools";
  if (parameter == "function_call") return "; send tools and tool_choice";
  return {};
}

}  // namespace

void UnknownParameters::pass_over(const std::string& name) {
  constexpr size_t kMostNames = 1000, kLongest = 100;
  const std::string shown = name.substr(0, kLongest);
  if (warned_.size() >= kMostNames || !warned_.insert(shown).second) return;
  log::warning("a request has the parameter {}, which has no effect here (--strict refuses it)",
               shown);
}

void check_parameters(const OrderedJson& body, const std::string& where, Api api,
                      UnknownParameters* unknown) {
  for (const auto& [key, value] : body.items()) {
    if (value.is_null()) continue;
    const Parameter* known = find(key, api);
    if (known == nullptr && unknown != nullptr && !unknown->strict()) {
      unknown->pass_over(key);
      continue;
    }
    if (known == nullptr) fail(ErrorKind::refused, "{}: unknown parameter: {}", where, key);
    if (known->use == ParameterUse::nothing && !asks_for_nothing(*known, value))
      fail(ErrorKind::refused, "{}: {} is not supported{}", where, key, instead_of(key));
  }
}

}  // namespace sluice
