#include "src/serve/apis/request_fields.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/serve/apis/structured.h"
#include "src/serve/refusal.h"

namespace sluice {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostLogprobs =
    20;  // vLLM's; each token's are kept until the response is written
constexpr int64_t kMostChoices = 128;  // OpenAI's

// A set of ids: each once, as every step looks at all of them.
std::vector<int32_t> id_list(const OrderedFields& body, const char* key) {
  if (!body.has(key)) return {};
  std::optional<std::vector<int32_t>> ids = ids_of(body.raw(key));
  if (!ids) fail(ErrorKind::refused, "{}: {} must be a list of token ids", body.where(), key);
  std::ranges::sort(*ids);
  ids->erase(std::ranges::unique(*ids).begin(), ids->end());
  return *std::move(ids);
}

std::vector<std::string> stop_strings(const OrderedFields& body) {
  if (!body.has("stop") || body.raw("stop") == OrderedJson("")) return {};
  const OrderedJson& stop = body.raw("stop");
  if (stop.is_string()) return {stop.get<std::string>()};
  bool good = stop.is_array() &&
              std::ranges::all_of(stop, [](const OrderedJson& s) { return s.is_string(); });
  if (!good)
    fail(ErrorKind::refused, "{}: stop must be a string or a list of strings", body.where());
  return stop.get<std::vector<std::string>>();
}

std::map<int32_t, float> logit_bias(const OrderedFields& body) {
  std::map<int32_t, float> bias;
  if (!body.has("logit_bias")) return bias;
  const OrderedJson& given = body.raw("logit_bias");
  bool good = given.is_object();
  for (const auto& [key, written] : given.items()) {
    const OrderedJson value = round_integers(written);
    const auto id = parse_number<int32_t>(key);
    good = good && id && value.is_number();
    if (!good) break;
    bias[*id] = value.get<float>();
  }
  if (!good) fail(ErrorKind::refused, "{}: logit_bias must map token ids to numbers", body.where());
  return bias;
}

// vLLM's, of words that are one token, alone or behind a blank.
void ban_words(const OrderedFields& body, const Checkpoint& checkpoint,
               std::vector<int32_t>& banned) {
  if (!body.has("bad_words")) return;
  const OrderedJson& words = body.raw("bad_words");
  const bool texts = words.is_array() &&
                     std::ranges::all_of(words, [](const OrderedJson& w) { return w.is_string(); });
  if (!texts) fail(ErrorKind::refused, "{}: bad_words must be a list of strings", body.where());
  for (const OrderedJson& word : words) {
    const auto& text = word.get_ref<const std::string&>();
    const size_t before = banned.size();
    for (const std::string& written : {text, " " + text}) {
      const std::vector<int32_t> ids = checkpoint.need_tokenizer().encode(written, false);
      if (ids.size() == 1) banned.push_back(ids.front());
    }
    if (banned.size() == before) {
      fail(ErrorKind::refused,
           "{}: bad_words: {:?} is not one token of this model; only single tokens can be banned",
           body.where(), text);
    }
  }
  std::ranges::sort(banned);
  banned.erase(std::ranges::unique(banned).begin(), banned.end());
}

// Reads 64 bits; -1 counts as absent, as in vLLM.
uint64_t seed_of(const OrderedFields& body, uint64_t fallback) {
  if (!body.has("seed")) return fallback;
  const OrderedJson& seed = body.raw("seed");
  if (!seed.is_number_integer())
    fail(ErrorKind::refused, "{}: seed must be an integer of 64 bits", body.where());
  return seed == OrderedJson(-1) ? fallback : seed.get<uint64_t>();
}

SamplingParams sampling_of(const OrderedFields& body, const RequestContext& context) {
  SamplingParams p = context.defaults;
  if (body.boolean_or("use_beam_search", false)) p = {.temperature = 1};
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, double SamplingParams::*>>{
           {"temperature", &SamplingParams::temperature},
           {"top_p", &SamplingParams::top_p},
           {"min_p", &SamplingParams::min_p},
           {"typical_p", &SamplingParams::typical_p},
           {"repetition_penalty", &SamplingParams::repetition_penalty},
           {"presence_penalty", &SamplingParams::presence_penalty},
           {"frequency_penalty", &SamplingParams::frequency_penalty}}) {
    p.*value = body.number_or(key, p.*value);
  }
  if (body.has("top_k"))
    p.top_k = std::max<int64_t>(0, body.integer("top_k", -1, kMost));  // -1: off
  p.no_repeat_ngram_size = body.integer_or("no_repeat_ngram_size", 0, kMost, 0);
  p.min_tokens = body.integer_or("min_tokens", 0, kMost, 0);
  p.logit_bias = logit_bias(body);
  p.banned_token_ids = id_list(body, "banned_token_ids");
  ban_words(body, context.checkpoint, p.banned_token_ids);
  p.stop_token_ids = id_list(body, "stop_token_ids");
  if (body.has("allowed_token_ids")) p.allowed_token_ids = id_list(body, "allowed_token_ids");
  p.prompt_logprobs = logprobs_of(body, "prompt_logprobs");
  p.seed = seed_of(body, context.defaults.seed);
  return p;
}

void read_stream(const OrderedFields& body, Completion& completion) {
  completion.stream = body.boolean_or("stream", false);
  if (!body.has("stream_options")) return;
  const OrderedFields options(body.raw("stream_options"), body.where() + ": stream_options");
  completion.include_usage = options.boolean_or("include_usage", false);
}

// Clients know a conversation that has become too long by these words, or by the code, and shorten
// it.
[[noreturn]] void refuse_length(const Completion& completion, const std::string& where,
                                const RequestContext& context) {
  const int64_t prompt = completion.longest_prompt(), most = context.max_model_len;
  const std::string message =
      prompt > most
          ? fmt::format("{}: prompt is too long: {} tokens > {} maximum (--max-model-len)", where,
                        prompt, most)
          : fmt::format(
                "{}: input length and `max_tokens` exceed context limit: {} + {} > {}, "
                "decrease one of them (--max-model-len)",
                where, prompt, completion.request.max_tokens, most);
  if (context.api == Api::batch) fail(ErrorKind::usage, "{}", message);
  throw Refusal(400, message, "context_length_exceeded");
}

// The newer one of OpenAI's two names counts.
int64_t max_tokens_of(const OrderedFields& body, const RequestContext& context) {
  const int64_t least = context.api == Api::batch ? 0 : kToTheEnd;  // as llama.cpp has it
  int64_t most = context.api == Api::chat ? kToTheEnd : 16;
  for (const char* key : {"max_tokens", "max_completion_tokens"})
    most = body.integer_or(key, least, kMost, most);
  return most;
}

}  // namespace

std::optional<std::vector<int32_t>> ids_of(const OrderedJson& list) {
  bool good = list.is_array() && std::ranges::all_of(list, [](const OrderedJson& id) {
                return id.is_number_unsigned() && id.get<uint64_t>() <= kMost;
              });
  if (!good) return std::nullopt;
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const OrderedJson& id : list) ids.push_back(id.get<int32_t>());
  return ids;
}

// Reads how many of the likeliest tokens; true is 1, as in vLLM, and false is none.
std::optional<int64_t> logprobs_of(const OrderedFields& body, const char* key) {
  if (!body.has(key) || body.raw(key) == OrderedJson(false)) return std::nullopt;
  return body.raw(key) == OrderedJson(true) ? 1 : body.integer(key, 0, kMostLogprobs);
}

Completion read_request(const OrderedFields& body, const RequestContext& context) {
  body.string_or("model", "");  // is only repeated, and must be a text
  Completion completion;
  Request& request = completion.request;
  completion.choices = body.integer_or("n", 1, kMostChoices, 1);
  if (context.api != Api::batch) read_stream(body, completion);
  request.max_tokens = max_tokens_of(body, context);
  request.sampling = sampling_of(body, context);
  if (context.api != Api::chat)  // whose answers have thoughts and calls, too
    request.sampling.grammar = grammar_of(body, context.checkpoint);
  request.stop = stop_strings(body);
  request.n = completion.choices;
  if (context.api != Api::chat)
    request.n = body.integer_or("best_of", 1, kMostChoices, completion.choices);
  if (request.n < completion.choices) {
    fail(ErrorKind::usage, "{}: best_of is {}, but n is {}", body.where(), request.n,
         completion.choices);
  }
  if (body.boolean_or("use_beam_search", false)) {
    request.beams = {request.n, body.number_or("length_penalty", 1)};
    request.n = completion.choices;
    if (!body.has("temperature")) request.sampling.temperature = 0;
  } else if (body.has("length_penalty")) {
    fail(ErrorKind::usage, "{}: length_penalty needs use_beam_search: true", body.where());
  }
  request.lookup = context.lookup;
  request.rank = request.n > completion.choices;
  if (request.rank && completion.stream)
    fail(ErrorKind::usage, "{}: best_of chooses at the end, and cannot be streamed", body.where());
  completion.return_token_ids = body.boolean_or("return_token_ids", false);
  request.priority = body.integer_or("priority", -1'000'000, 1'000'000, 0);
  request.skip_special_tokens = body.boolean_or("skip_special_tokens", true);
  request.include_stop = body.boolean_or("include_stop_str_in_output", false);
  if (!body.boolean_or("ignore_eos", false))
    request.eos_ids = context.checkpoint.model().files.eos_ids;
  return completion;
}

void check_prompts(Completion& completion, const std::string& where,
                   const RequestContext& context) {
  const Checkpoint& checkpoint = context.checkpoint;
  Request& request = completion.request;
  const int64_t room = context.max_model_len - completion.longest_prompt();
  // A client knows how long a sequence may be, and not how many tokens its prompt has.
  const bool cut = context.api != Api::batch && room > 0 && request.max_tokens > room &&
                   request.max_tokens <= context.max_model_len;
  if (request.max_tokens == kToTheEnd || cut) request.max_tokens = std::max<int64_t>(room, 1);
  for (std::vector<int32_t>& prompt : completion.prompts) {
    request.prompt.swap(prompt);
    try {
      check_request(request, checkpoint.spec().vocab_size, checkpoint.tokenizer() != nullptr);
    } catch (const Error& e) {
      fail(e.kind(), "{}: {}", where, e.what());
    }
    request.prompt.swap(prompt);
  }
  if (request.max_tokens > room) refuse_length(completion, where, context);
}

}  // namespace sluice
