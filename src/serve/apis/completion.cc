#include "src/serve/apis/completion.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/grammar/state.h"
#include "src/serve/apis/request_fields.h"

namespace sluice {
namespace {

constexpr size_t kMostPrompts = 2048;  // of one request

}  // namespace

std::vector<std::vector<int32_t>> read_prompts(const OrderedFields& body, const char* key,
                                               const Checkpoint& checkpoint) {
  bool special = body.boolean_or("add_special_tokens", true);
  auto ids = [&](const OrderedJson& prompt) {
    if (prompt.is_string())
      return checkpoint.need_tokenizer().encode(prompt.get_ref<const std::string&>(), special);
    std::optional<std::vector<int32_t>> list = ids_of(prompt);
    if (!list) {
      fail(ErrorKind::refused, "{}: {} must be a text, a list of token ids, or a list of these",
           body.where(), key);
    }
    return *std::move(list);
  };
  if (!body.has(key)) fail(ErrorKind::refused, "{}: {} is missing", body.where(), key);
  const OrderedJson& given = body.raw(key);
  bool several = given.is_array() && !given.empty() && !given.front().is_number();
  if (!several) return {ids(given)};
  if (given.size() > kMostPrompts) {
    fail(ErrorKind::refused, "{}: {} has {} prompts, but {} is the most of one request",
         body.where(), key, given.size(), kMostPrompts);
  }
  std::vector<std::vector<int32_t>> all;
  for (const OrderedJson& prompt : given) all.push_back(ids(prompt));
  return all;
}

namespace {

// Returns the bytes of a request's lists: a node of the tree for each bias, and the texts and ids.
uint64_t lists_bytes(const Request& r) {
  constexpr uint64_t kBias = 64, kString = 64;
  const SamplingParams& p = r.sampling;
  size_t ids = p.banned_token_ids.size() + p.stop_token_ids.size() + r.eos_ids.size();
  if (p.allowed_token_ids) ids += p.allowed_token_ids->size();
  uint64_t bytes = p.logit_bias.size() * kBias + ids * sizeof(int32_t);
  for (const std::string& stop : r.stop) bytes += kString + 2 * stop.size();  // and its borders
  return bytes;
}

}  // namespace

Completion parse_completion(const OrderedJson& json, const std::string& where,
                            const RequestContext& context) {
  OrderedFields body(json, where);
  check_parameters(json, where, context.api, context.unknown);
  Completion completion = read_request(body, context);
  SamplingParams& sampling = completion.request.sampling;
  completion.echo = body.boolean_or("echo", false);
  sampling.logprobs = logprobs_of(body, "logprobs");
  if (completion.echo && sampling.logprobs) sampling.prompt_logprobs = sampling.logprobs;
  if (completion.stream && sampling.prompt_logprobs)
    fail(ErrorKind::usage, "{}: the prompt's logprobs cannot be streamed", where);
  completion.prompts = read_prompts(body, "prompt", context.checkpoint);
  check_prompts(completion, where, context);
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
uint64_t held_bytes(const Completion& asked, int64_t longest_token, int64_t tokens) {
  constexpr uint64_t kSequence = 8 * KiB;  // of the engine: random numbers, blocks, the request
  constexpr uint64_t kId = 2 * sizeof(int32_t);
  const Request& r = asked.request;
  auto most = static_cast<uint64_t>(tokens);
  auto text = static_cast<uint64_t>(longest_token);
  uint64_t sequences = static_cast<uint64_t>(std::max(r.n, 2 * r.beams.width));
  uint64_t lists = lists_bytes(r);
  const uint64_t state = r.sampling.grammar ? grammar::kMaxStateBytes : 0;
  uint64_t bytes =
      asked.form_bytes + lists + (r.sampling.grammar ? r.sampling.grammar->grammar->bytes() : 0);
  for (const std::vector<int32_t>& prompt : asked.prompts) {
    uint64_t a_sequence = kSequence + state + 4 * lists + prompt.size() * 2 * kId +
                          most * (2 * kId + 2 * text) +
                          (asked.keeps_logprobs ? 2 : 1) * logprob_bytes(r.sampling.logprobs, most);
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
