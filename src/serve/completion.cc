#include "src/serve/completion.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/grammar/state.h"
#include "src/serve/parameters.h"
#include "src/serve/structured.h"

namespace sluice {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostLogprobs =
    20;  // vLLM's; each token's are kept until the response is written
constexpr int64_t kMostChoices = 128;  // OpenAI's
constexpr size_t kMostPrompts = 2048;  // of one request

std::optional<std::vector<int32_t>> ids_of(const Json& list) {
  bool good = list.is_array() && std::ranges::all_of(list, [](const Json& id) {
                return id.is_number_unsigned() && id.get<uint64_t>() <= kMost;
              });
  if (!good) return std::nullopt;
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) ids.push_back(id.get<int32_t>());
  return ids;
}

std::vector<int32_t> id_list(const JsonFields& body, const char* key) {
  if (!body.has(key)) return {};
  std::optional<std::vector<int32_t>> ids = ids_of(body.raw(key));
  if (!ids) fail(ErrorKind::refused, "{}: {} must be a list of token ids", body.where(), key);
  return *std::move(ids);
}

// A text, a list of token ids, or a list of texts and of such lists.
std::vector<std::vector<int32_t>> prompts(const JsonFields& body, const Session& session) {
  bool special = body.boolean_or("add_special_tokens", true);
  auto ids = [&](const Json& prompt) {
    if (prompt.is_string())
      return session.need_tokenizer().encode(prompt.get_ref<const std::string&>(), special);
    std::optional<std::vector<int32_t>> list = ids_of(prompt);
    if (!list) {
      fail(ErrorKind::refused, "{}: prompt must be a text, a list of token ids, or a list of these",
           body.where());
    }
    return *std::move(list);
  };
  if (!body.has("prompt")) fail(ErrorKind::refused, "{}: prompt is missing", body.where());
  const Json& given = body.raw("prompt");
  bool several = given.is_array() && !given.empty() && !given.front().is_number();
  if (!several) return {ids(given)};
  if (given.size() > kMostPrompts) {
    fail(ErrorKind::refused, "{}: prompt has {} prompts, but {} is the most of one request",
         body.where(), given.size(), kMostPrompts);
  }
  std::vector<std::vector<int32_t>> all;
  for (const Json& prompt : given) all.push_back(ids(prompt));
  return all;
}

std::vector<std::string> stop_strings(const JsonFields& body) {
  if (!body.has("stop") || body.raw("stop") == Json("")) return {};
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
  bool good = given.is_object();
  for (const auto& [key, value] : given.items()) {
    int32_t id = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    good = good && error == std::errc() && end == key.data() + key.size() && value.is_number();
    if (!good) break;
    bias[id] = value.get<float>();
  }
  if (!good) fail(ErrorKind::refused, "{}: logit_bias must map token ids to numbers", body.where());
  return bias;
}

// Of 64 bits; -1 is as if there were none, as in vLLM.
uint64_t seed_of(const JsonFields& body) {
  if (!body.has("seed")) return 0;
  const Json& seed = body.raw("seed");
  if (!seed.is_number_integer())
    fail(ErrorKind::refused, "{}: seed must be an integer of 64 bits", body.where());
  return seed == Json(-1) ? 0 : seed.get<uint64_t>();
}

// Of the likeliest tokens; true is 1, as in vLLM, and false asks for none, as in chat requests.
std::optional<int64_t> logprobs_of(const JsonFields& body, const char* key) {
  if (!body.has(key) || body.raw(key) == Json(false)) return std::nullopt;
  return body.raw(key) == Json(true) ? 1 : body.integer(key, 0, kMostLogprobs);
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
  p.logprobs = logprobs_of(body, "logprobs");
  p.prompt_logprobs = logprobs_of(body, "prompt_logprobs");
  p.seed = seed_of(body);
  return p;
}

// But for its prompt.
Request request_of(const JsonFields& body, const Session& session, const Completion& completion) {
  Request request;
  request.max_tokens = body.integer_or(
      body.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens", 0, kMost, 16);
  request.sampling = sampling_of(body);
  request.sampling.grammar = grammar_of(body, session);
  request.stop = stop_strings(body);
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
    fail(ErrorKind::usage, "{}: length_penalty is for use_beam_search", body.where());
  }
  request.rank = request.n > completion.choices;
  if (completion.echo && request.sampling.logprobs)
    request.sampling.prompt_logprobs = request.sampling.logprobs;
  request.priority = body.integer_or("priority", -1'000'000, 1'000'000, 0);
  request.skip_special_tokens = body.boolean_or("skip_special_tokens", true);
  if (!body.boolean_or("ignore_eos", false)) request.eos_ids = session.model().files.eos_ids;
  return request;
}

void check_whole(const Request& request, const std::string& where, const Session& session) {
  try {
    check_request(request, session.spec().vocab_size, session.tokenizer() != nullptr);
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", where, e.what());
  }
  int64_t tokens = std::ssize(request.prompt) + request.max_tokens;
  if (tokens > session.max_model_len()) {
    fail(ErrorKind::usage,
         "{}: the prompt has {} tokens and max_tokens is {}, but a sequence may have {} in all",
         where, request.prompt.size(), request.max_tokens, session.max_model_len());
  }
}

// Of its lists: a node of the tree for each bias, and the texts and ids.
uint64_t lists_bytes(const Request& r) {
  constexpr uint64_t kBias = 64, kString = 64;
  const SamplingParams& p = r.sampling;
  size_t ids = p.banned_token_ids.size() + p.stop_token_ids.size() + r.eos_ids.size();
  if (p.allowed_token_ids) ids += p.allowed_token_ids->size();
  uint64_t bytes = p.logit_bias.size() * kBias + ids * sizeof(int32_t);
  for (const std::string& stop : r.stop) bytes += kString + stop.size();
  return bytes;
}

}  // namespace

Completion parse_completion(const Json& json, const std::string& where, const Session& session) {
  JsonFields body(json, where);
  check_parameters(json, where);
  body.string_or("model", "");  // is only repeated, and must be a text
  Completion completion;
  completion.echo = body.boolean_or("echo", false);
  completion.choices = body.integer_or("n", 1, kMostChoices, 1);
  completion.request = request_of(body, session, completion);
  completion.prompts = prompts(body, session);
  Request& request = completion.request;
  for (std::vector<int32_t>& prompt : completion.prompts) {
    request.prompt.swap(prompt);
    check_whole(request, where, session);
    request.prompt.swap(prompt);
  }
  return completion;
}

Request Completion::request_of(size_t prompt) const {
  Request whole = request;
  whole.prompt = prompts[prompt];
  return whole;
}

int64_t Completion::longest_prompt() const {
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest);
}

// Lists that grow have room for twice what is in them. A beam's end is kept beside the one that
// goes on.
uint64_t held_bytes(const Completion& asked, int64_t longest_token) {
  constexpr uint64_t kSequence = 8 * KiB;  // of the engine: random numbers, blocks, the request
  constexpr uint64_t kId = 2 * sizeof(int32_t);
  const Request& r = asked.request;
  auto most = static_cast<uint64_t>(r.max_tokens);
  auto text = static_cast<uint64_t>(longest_token);
  uint64_t sequences = static_cast<uint64_t>(std::max(r.n, 2 * r.beams.width));
  uint64_t lists = lists_bytes(r);
  const uint64_t state = r.sampling.grammar ? grammar::kMaxStateBytes : 0;
  uint64_t bytes = lists + (r.sampling.grammar ? r.sampling.grammar->grammar->bytes() : 0);
  for (const std::vector<int32_t>& prompt : asked.prompts) {
    uint64_t a_sequence = kSequence + state + 4 * lists + prompt.size() * 2 * kId +
                          most * (2 * kId + 2 * text) + logprob_bytes(r.sampling.logprobs, most);
    bytes += prompt.size() * kId + sequences * a_sequence +
             logprob_bytes(r.sampling.prompt_logprobs, prompt.size());
    if (asked.echo) bytes += prompt.size() * 2 * text;
  }
  return bytes;
}

int64_t longest_token(const Tokenizer* tokenizer) {
  size_t longest = 0;
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id)
    if (tokenizer->has(id)) longest = std::max(longest, tokenizer->bytes(id, false).size());
  return static_cast<int64_t>(longest);
}

}  // namespace sluice
