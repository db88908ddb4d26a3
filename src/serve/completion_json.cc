// What comes out of the engine to the body of a response.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "src/serve/completion.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

int64_t characters(std::string_view utf8) {
  return std::ranges::count_if(utf8, [](char c) { return (c & 0xC0) != 0x80; });
}

std::string id_text(int32_t id) { return fmt::format("token_id:{}", id); }

// As OpenAI has it: what is no text alone, a part of a character, is written as bytes.
std::string text_of(int32_t id, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->has(id)) return id_text(id);
  std::string bytes = tokenizer->bytes(id, false);
  if (to_valid_utf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

// Where tokens begin in their text, in characters (code points).
class TextOffsets {
 public:
  TextOffsets(const Tokenizer* tokenizer, bool skip_special_tokens, int64_t first)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens), next_(first) {}

  int64_t add(int32_t id) {
    bool shown = tokenizer_ != nullptr && tokenizer_->has(id) &&
                 !(skip_special_tokens_ && tokenizer_->is_special(id));
    if (!shown) return next_;
    std::string bytes = tokenizer_->bytes(id, std::exchange(first_, false));
    // What does not go on with a character that has begun ends it: U+FFFD.
    bool goes_on = bytes.empty() || (bytes[0] & 0xC0) == 0x80;
    int64_t at = next_ + (utf8_.incomplete() && !goes_on ? 1 : 0);
    std::string text;
    utf8_.append(bytes, text);
    next_ += characters(text);
    return at;
  }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  Utf8Decoder utf8_;
  bool first_ = true;
  int64_t next_;
};

// Lists that are as long as there are tokens.
class LogprobLists {
 public:
  explicit LogprobLists(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  void add(const TokenLogprobs& t, int64_t offset) {
    add(t.token.token_id, t.token.logprob, offset);
    Json& top = tops_.emplace_back(Json::object());
    for (const Logprob& l : t.top) {  // likeliest first: of equal texts it has the text
      if (!top.emplace(text_of(l.token_id, tokenizer_), l.logprob).second)
        top.emplace(id_text(l.token_id), l.logprob);
    }
  }
  // A prompt's first token has no probability: nothing comes before it.
  void add_first(int32_t id, int64_t offset) {
    add(id, nullptr, offset);
    tops_.push_back(nullptr);
  }
  Json json() && {
    return {{"tokens", std::move(texts_)},
            {"token_logprobs", std::move(values_)},
            {"top_logprobs", std::move(tops_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  void add(int32_t id, Json value, int64_t offset) {
    texts_.push_back(text_of(id, tokenizer_));
    values_.push_back(std::move(value));
    offsets_.push_back(offset);
  }

  const Tokenizer* tokenizer_;
  Json texts_ = Json::array(), values_ = Json::array(), tops_ = Json::array(),
       offsets_ = Json::array();
};

// One prompt, and what all of its choices begin with.
struct Prompt {
  const Request& request;
  bool echo;
  const Tokenizer* tokenizer;
  std::vector<TokenLogprobs> logprobs;  // of its tokens after the first
  std::string begin;
};

Json logprobs_json(const Prompt& prompt, const RequestResult& result, const std::string& text) {
  const Request& r = prompt.request;
  if (!r.sampling.logprobs) return nullptr;
  LogprobLists lists(prompt.tokenizer);
  if (prompt.echo) {
    TextOffsets offsets(prompt.tokenizer, r.skip_special_tokens, 0);
    lists.add_first(r.prompt[0], offsets.add(r.prompt[0]));
    for (const TokenLogprobs& t : prompt.logprobs) lists.add(t, offsets.add(t.token.token_id));
  }
  TextOffsets offsets(prompt.tokenizer, r.skip_special_tokens, characters(prompt.begin));
  int64_t end = characters(text);  // before a stop string
  for (const TokenLogprobs& t : result.logprobs)
    lists.add(t, std::min(offsets.add(t.token.token_id), end));
  return std::move(lists).json();
}

// As vLLM has them: a list of token id → logprob, of the token and the likeliest ones.
Json prompt_logprobs_json(const Prompt& prompt) {
  Json list = Json::array({nullptr});
  for (const TokenLogprobs& t : prompt.logprobs) {
    Json entry = Json::object();
    auto add = [&](const Logprob& l) {
      entry[std::to_string(l.token_id)] = {
          {"logprob", l.logprob}, {"decoded_token", text_of(l.token_id, prompt.tokenizer)}};
    };
    for (const Logprob& l : t.top) add(l);
    add(t.token);
    list.push_back(std::move(entry));
  }
  return list;
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

void add_choices(const Completion& asked, const Prompt& prompt, std::vector<RequestResult> results,
                 Json& choices) {
  const SamplingParams& sampling = prompt.request.sampling;
  for (const RequestResult& r : best(std::move(results), asked.choices)) {
    std::string text = prompt.begin + r.text;
    choices.push_back({{"index", choices.size()},
                       {"text", text},
                       {"token_ids", r.ids},
                       {"logprobs", logprobs_json(prompt, r, text)},
                       {"finish_reason", r.finish_reason}});
    bool listed = prompt.echo && sampling.logprobs;  // among the tokens
    if (sampling.prompt_logprobs && !listed)
      choices.back()["prompt_logprobs"] = prompt_logprobs_json(prompt);
  }
}

}  // namespace

Json completion_json(const CompletionHead& head, const Completion& asked,
                     std::vector<std::vector<RequestResult>> results, const Tokenizer* tokenizer) {
  Json choices = Json::array();
  int64_t generated = 0, prompt_tokens = 0;
  for (size_t i = 0; i < asked.requests.size(); ++i) {
    const Request& request = asked.requests[i];
    prompt_tokens += std::ssize(request.prompt);
    for (const RequestResult& r : results[i]) generated += std::ssize(r.ids);
    Prompt prompt{
        request, asked.echo, tokenizer, std::move(results[i].front().prompt_logprobs), {}};
    if (asked.echo && tokenizer != nullptr)
      prompt.begin = tokenizer->decode(request.prompt, request.skip_special_tokens);
    add_choices(asked, prompt, std::move(results[i]), choices);
  }
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", choices},
          {"usage",
           {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", generated},
            {"total_tokens", prompt_tokens + generated}}}};
}

Json api_error_json(const std::string& message) {
  return {{"error",
           {{"message", message},
            {"type", "invalid_request_error"},
            {"param", nullptr},
            {"code", nullptr}}}};
}

}  // namespace sluice
