// Bodies of responses, from results of the engine.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "src/serve/apis/completion.h"
#include "src/serve/apis/ordered_json.h"
#include "src/serve/apis/token_text.h"

namespace sluice {
namespace {

// One prompt, and what all of its choices begin with.
struct Prompt {
  const Request& request;  // but for its prompt
  const std::vector<int32_t>& ids;
  bool echo;
  bool tells_ids;
  const Tokenizer* tokenizer;
  std::vector<TokenLogprobs> logprobs;  // of its tokens after the first
  std::string begin;
};

// A choice's tokens in their order: with `echo` the prompt's, too.
class ChoiceTokens {
 public:
  ChoiceTokens(const Prompt& prompt, const RequestResult& result)
      : prompt_(prompt), result_(result) {}

  // Calls visit(id, its logprobs, where it begins in the text). A prompt's first token has no
  // probability, as nothing comes before it: null.
  template <class Visit>
  void each(Visit visit) const {
    const bool skip = prompt_.request.skip_special_tokens;
    if (prompt_.echo) {
      TextOffsets offsets(prompt_.tokenizer, skip, 0);
      visit(prompt_.ids[0], static_cast<const TokenLogprobs*>(nullptr),
            offsets.add(prompt_.ids[0]));
      for (const TokenLogprobs& t : prompt_.logprobs)
        visit(t.token.token_id, &t, offsets.add(t.token.token_id));
    }
    auto first = static_cast<int64_t>(character_count(prompt_.begin));
    TextOffsets offsets(prompt_.tokenizer, skip, first);
    auto end = first + static_cast<int64_t>(character_count(result_.text));  // before a stop string
    for (const TokenLogprobs& t : result_.logprobs)
      visit(t.token.token_id, &t, std::min(offsets.add(t.token.token_id), end));
  }

 private:
  const Prompt& prompt_;
  const RequestResult& result_;
};

// Lists that are as long as there are tokens.
void write_logprobs(JsonWriter& json, const Prompt& prompt, const RequestResult& result) {
  if (!prompt.request.sampling.logprobs) return json.value(nullptr);
  const ChoiceTokens tokens(prompt, result);
  auto write_list = [&](const char* name, auto entry) {
    json.key(name);
    json.array([&] {
      tokens.each([&](int32_t id, const TokenLogprobs* t, int64_t offset) {
        json.value(entry(id, t, offset));
      });
    });
  };
  json.begin_object();
  write_list("text_offset",
             [](int32_t, const TokenLogprobs*, int64_t offset) { return Json(offset); });
  write_list("token_logprobs", [](int32_t, const TokenLogprobs* t, int64_t) {
    return t == nullptr ? Json() : Json(t->token.logprob);
  });
  write_list("tokens", [&](int32_t id, const TokenLogprobs*, int64_t) {
    return Json(token_text(id, prompt.tokenizer));
  });
  write_list("top_logprobs", [&](int32_t, const TokenLogprobs* t, int64_t) {
    return top_logprobs_json(t, prompt.tokenizer);
  });
  json.end_object();
}

// Writes them as vLLM does: a list of token id → logprob, of the token and the likeliest ones.
void write_prompt_logprobs(JsonWriter& json, const Prompt& prompt) {
  auto write = [&](const TokenLogprobs& t) {
    Json entry = Json::object();
    auto add = [&](const Logprob& l) {
      entry[std::to_string(l.token_id)] = {
          {"logprob", l.logprob}, {"decoded_token", token_text(l.token_id, prompt.tokenizer)}};
    };
    for (const Logprob& l : t.top) add(l);
    add(t.token);
    json.value(entry);
  };
  json.array([&] {
    json.value(nullptr);
    std::ranges::for_each(prompt.logprobs, write);
  });
}

// OpenAI's best_of: "the one with the highest log probability per token".
std::vector<RequestResult> best(std::vector<RequestResult> results, int64_t choices) {
  if (std::ssize(results) <= choices) return results;
  std::ranges::stable_sort(results, std::greater{}, [](const RequestResult& r) {
    return r.cumulative_logprob / static_cast<double>(std::max<size_t>(r.ids.size(), 1));
  });
  results.resize(static_cast<size_t>(choices));
  return results;
}

void write_choice(JsonWriter& json, const Prompt& prompt, const RequestResult& r, int64_t index) {
  const SamplingParams& sampling = prompt.request.sampling;
  json.begin_object();
  json.member("index", index);
  json.key("text");
  json.text({prompt.begin, r.text});
  json.key("logprobs");
  write_logprobs(json, prompt, r);
  json.member("finish_reason", r.finish_reason);
  bool listed = prompt.echo && sampling.logprobs;  // among the tokens
  if (sampling.prompt_logprobs && !listed) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, prompt);
  }
  if (prompt.tells_ids) {
    json.key("prompt_token_ids");
    json.array(prompt.ids);
  }
  json.key("token_ids");
  json.array(r.ids);
  json.end_object();
}

}  // namespace

void write_completion(JsonWriter& json, const CompletionHead& head, const Completion& asked,
                      std::vector<std::vector<RequestResult>> results, const Tokenizer* tokenizer) {
  const Request& request = asked.request;
  Usage usage;
  if (head.tells_cached) usage.cached_tokens = 0;
  int64_t choices = 0;
  json.begin_object();
  json.member("id", head.id);
  json.member("object", "text_completion");
  json.member("created", head.created);
  json.member("model", head.model);
  json.key("choices");
  json.array([&] {
    for (size_t i = 0; i < asked.prompts.size(); ++i) {
      Prompt prompt{request,    asked.prompts[i],
                    asked.echo, asked.return_token_ids,
                    tokenizer,  std::move(results[i].front().prompt_logprobs),
                    {}};
      if (asked.echo && tokenizer != nullptr)
        prompt.begin = tokenizer->decode(prompt.ids, request.skip_special_tokens);
      usage.add(std::ssize(prompt.ids), results[i]);
      for (const RequestResult& r : best(std::move(results[i]), asked.choices))
        write_choice(json, prompt, r, choices++);
    }
  });
  json.key("usage");
  write_usage(json, usage);
  json.end_object();
}

void Usage::add(int64_t prompt, std::span<const RequestResult> results) {
  prompt_tokens += prompt;
  if (cached_tokens) *cached_tokens += results.front().prefix_tokens;
  for (const RequestResult& r : results) completion_tokens += std::ssize(r.ids);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  OrderedJson all{{"prompt_tokens", usage.prompt_tokens},
                  {"completion_tokens", usage.completion_tokens},
                  {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  if (usage.cached_tokens) all["prompt_tokens_details"]["cached_tokens"] = *usage.cached_tokens;
  json.value(all);
}

Json api_error_json(const std::string& message) {
  return {{"error",
           {{"message", message},
            {"type", "invalid_request_error"},
            {"param", nullptr},
            {"code", nullptr}}}};
}

}  // namespace sluice
