#include "src/serve/completion.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostLogprobs =
    20;  // vLLM's; each token's are kept until the response is written
constexpr int64_t kMostChoices = 128;  // OpenAI's

constexpr std::array<std::string_view, 34> kKnown{
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p", "n",
    "stop", "seed", "logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "min_tokens", "stop_token_ids", "ignore_eos", "allowed_token_ids",
    "banned_token_ids", "no_repeat_ngram_size", "priority", "user", "metadata", "echo", "best_of",
    "prompt_logprobs", "use_beam_search", "length_penalty",
    // Known, but only as what they are without being named.
    "stream", "suffix", "stream_options", "response_format"};

void check_known(const Json& body, const std::string& where) {
  for (const auto& [key, value] : body.items()) {
    if (std::ranges::find(kKnown, key) == kKnown.end())
      fail(ErrorKind::refused, "{}: {} is not a parameter that is known here", where, key);
    bool asked = !value.is_null() && value != Json(false) && value != Json(1);
    bool unsupported = std::ranges::find(kKnown, key) - kKnown.begin() >= 30;
    if (unsupported && asked) fail(ErrorKind::refused, "{}: {} is not supported here", where, key);
  }
}

std::vector<int32_t> id_list(const JsonFields& body, const char* key) {
  std::vector<int32_t> ids;
  if (!body.has(key)) return ids;
  const Json& list = body.raw(key);
  bool good = list.is_array() && std::ranges::all_of(list, [](const Json& id) {
                return id.is_number_unsigned() && id.get<uint64_t>() <= kMost;
              });
  if (!good) fail(ErrorKind::refused, "{}: {} must be a list of token ids", body.where(), key);
  for (const Json& id : list) ids.push_back(id.get<int32_t>());
  return ids;
}

std::vector<int32_t> prompt_ids(const JsonFields& body, const Session& session) {
  if (body.has("prompt") && body.raw("prompt").is_array()) return id_list(body, "prompt");
  std::string text = body.string("prompt");
  return text.empty() ? std::vector<int32_t>() : session.need_tokenizer().encode(text, true);
}

std::vector<std::string> stop_strings(const JsonFields& body) {
  if (!body.has("stop")) return {};
  const Json& stop = body.raw("stop");
  if (stop.is_string()) return {stop.get<std::string>()};
  bool good =
      stop.is_array() && std::ranges::all_of(stop, [](const Json& s) { return s.is_string(); });
  if (!good)
    fail(ErrorKind::refused, "{}: stop must be a string or a list of strings", body.where());
  return stop.get<std::vector<std::string>>();
}

std::map<int32_t, float> logit_bias(const JsonFields& body) {
  std::map<int32_t, float> bias;
  if (!body.has("logit_bias")) return bias;
  const Json& given = body.raw("logit_bias");
  for (const auto& [key, value] : given.items()) {
    int32_t id = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    bool good = given.is_object() && error == std::errc() && end == key.data() + key.size() &&
                value.is_number();
    if (!good) {
      fail(ErrorKind::refused, "{}: logit_bias must map token ids to numbers", body.where());
    }
    bias[id] = value.get<float>();
  }
  return bias;
}

SamplingParams sampling_of(const JsonFields& body) {
  SamplingParams p;
  p.temperature = body.number_or("temperature", 1);
  p.top_k = std::max<int64_t>(0, body.integer_or("top_k", -1, kMost, 0));  // -1: off, as in vLLM
  p.top_p = body.number_or("top_p", 1);
  p.min_p = body.number_or("min_p", 0);
  p.typical_p = body.number_or("typical_p", 1);
  p.repetition_penalty = body.number_or("repetition_penalty", 1);
  p.presence_penalty = body.number_or("presence_penalty", 0);
  p.frequency_penalty = body.number_or("frequency_penalty", 0);
  p.no_repeat_ngram_size = body.integer_or("no_repeat_ngram_size", 0, kMost, 0);
  p.min_tokens = body.integer_or("min_tokens", 0, kMost, 0);
  p.logit_bias = logit_bias(body);
  p.banned_token_ids = id_list(body, "banned_token_ids");
  p.stop_token_ids = id_list(body, "stop_token_ids");
  if (body.has("allowed_token_ids")) p.allowed_token_ids = id_list(body, "allowed_token_ids");
  for (auto [key, value] :
       {std::pair("logprobs", &p.logprobs), std::pair("prompt_logprobs", &p.prompt_logprobs)})
    if (body.has(key)) *value = body.integer(key, 0, kMostLogprobs);
  p.seed =
      static_cast<uint64_t>(body.integer_or("seed", 0, std::numeric_limits<int64_t>::max(), 0));
  return p;
}

std::string text_of(int32_t id, const Tokenizer* tokenizer) {
  return tokenizer != nullptr ? tokenizer->bytes(id, false) : fmt::format("token_id:{}", id);
}

// Lists that are as long as there are tokens.
struct LogprobLists {
  const Tokenizer* tokenizer;
  Json texts = Json::array(), values = Json::array(), tops = Json::array();

  void add(const TokenLogprobs& t) {
    texts.push_back(text_of(t.token.token_id, tokenizer));
    values.push_back(t.token.logprob);
    Json top = Json::object();
    for (const Logprob& l : t.top)
      top.emplace(text_of(l.token_id, tokenizer), l.logprob);  // likeliest first
    tops.push_back(std::move(top));
  }
  // A prompt's first token has no probability: nothing comes before it.
  void add_first(int32_t id) {
    texts.push_back(text_of(id, tokenizer));
    values.push_back(nullptr);
    tops.push_back(nullptr);
  }
};

Json logprobs_json(const Completion& asked, const RequestResult& first, const RequestResult& result,
                   std::span<const int32_t> prompt, const Tokenizer* tokenizer) {
  if (!asked.request.sampling.logprobs) return nullptr;
  LogprobLists lists{tokenizer};
  if (asked.echo) {
    lists.add_first(prompt[0]);
    for (const TokenLogprobs& t : first.prompt_logprobs) lists.add(t);
  }
  for (const TokenLogprobs& t : result.logprobs) lists.add(t);
  return {{"tokens", lists.texts}, {"token_logprobs", lists.values}, {"top_logprobs", lists.tops}};
}

// As vLLM has them: a list of token id → logprob, of the token and the likeliest ones.
Json prompt_logprobs_json(const std::vector<TokenLogprobs>& tokens, const Tokenizer* tokenizer) {
  Json list = Json::array({nullptr});
  for (const TokenLogprobs& t : tokens) {
    Json entry = Json::object();
    auto add = [&](const Logprob& l) {
      entry[std::to_string(l.token_id)] = {{"logprob", l.logprob},
                                           {"decoded_token", text_of(l.token_id, tokenizer)}};
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
    return r.cumulative_logprob / static_cast<double>(r.ids.size());
  });
  results.resize(static_cast<size_t>(choices));
  return results;
}

}  // namespace

Completion parse_completion(const Json& json, const std::string& where, const Session& session) {
  JsonFields body(json, where);
  check_known(json, where);
  body.string_or("model", "");  // is only repeated, and must be a text
  Completion completion;
  Request& request = completion.request;
  completion.echo = body.boolean_or("echo", false);
  request.prompt = prompt_ids(body, session);
  request.max_tokens = body.integer_or("max_tokens", 1, kMost, 16);
  request.sampling = sampling_of(body);
  request.stop = stop_strings(body);
  completion.choices = body.integer_or("n", 1, kMostChoices, 1);
  request.n = body.integer_or("best_of", 1, kMostChoices, completion.choices);
  if (request.n < completion.choices)
    fail(ErrorKind::usage, "{}: best_of is {}, but n is {}", where, request.n, completion.choices);
  if (body.boolean_or("use_beam_search", false)) {
    request.beams = {request.n, body.number_or("length_penalty", 1)};
    request.n = completion.choices;
    if (!body.has("temperature")) request.sampling.temperature = 0;
  } else if (body.has("length_penalty")) {
    fail(ErrorKind::usage, "{}: length_penalty is for use_beam_search", where);
  }
  request.rank = request.n > completion.choices;
  if (completion.echo && request.sampling.logprobs)
    request.sampling.prompt_logprobs = request.sampling.logprobs;
  request.priority = body.integer_or("priority", -1'000'000, 1'000'000, 0);
  if (!body.boolean_or("ignore_eos", false)) request.eos_ids = session.model().files.eos_ids;
  try {
    check_request(request, session.config().vocab_size, session.tokenizer() != nullptr);
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", where, e.what());
  }
  int64_t tokens = std::ssize(request.prompt) + request.max_tokens;
  if (tokens > session.max_model_len()) {
    fail(ErrorKind::usage,
         "{}: the prompt has {} tokens and max_tokens is {}, but a sequence may have {} in all",
         where, request.prompt.size(), request.max_tokens, session.max_model_len());
  }
  return completion;
}

Json completion_json(const CompletionHead& head, const Completion& asked,
                     std::vector<RequestResult> results, std::span<const int32_t> prompt,
                     const Tokenizer* tokenizer) {
  Json choices = Json::array();
  int64_t generated = 0, prompt_tokens = std::ssize(prompt);
  for (const RequestResult& r : results) generated += std::ssize(r.ids);
  std::string begin = asked.echo && tokenizer != nullptr ? tokenizer->decode(prompt, true) : "";
  RequestResult first = results.front();
  for (const RequestResult& r : best(std::move(results), asked.choices)) {
    choices.push_back({{"index", choices.size()},
                       {"text", begin + r.text},
                       {"token_ids", r.ids},
                       {"logprobs", logprobs_json(asked, first, r, prompt, tokenizer)},
                       {"finish_reason", r.finish_reason}});
    if (asked.request.sampling.prompt_logprobs && !asked.echo)
      choices.back()["prompt_logprobs"] = prompt_logprobs_json(first.prompt_logprobs, tokenizer);
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
