// The completions API of OpenAI, with vLLM's further sampling parameters: the body of a request to
// what the engine takes, and what comes out to the body of the response.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/base/json_writer.h"
#include "src/engine/checkpoint.h"
#include "src/engine/request.h"
#include "src/serve/apis/parameters.h"

namespace sluice {

// A parsed request, and the form of its answer.
struct Completion {
  Request request;  // but for its prompt
  std::vector<std::vector<int32_t>> prompts;
  int64_t choices = 1;         // returned of a request's n, by highest logprob a token
  bool echo = false;           // each choice begins with its prompt
  bool stream = false;         // tokens are told as they come
  bool include_usage = false;  // at the end of a stream
  bool return_token_ids = false;
  bool keeps_logprobs = false;  // the form of its answer does, beside the results
  uint64_t form_bytes = 0;      // that the form of its answer holds beside this

  // For the engine, of one of the prompts.
  Request request_of(size_t prompt) const;
  int64_t longest_prompt() const;  // tokens
};

// The context in which requests are read.
struct RequestContext {
  const Checkpoint& checkpoint;
  int64_t max_model_len = 0;  // tokens of a sequence
  Api api = Api::batch;
  bool lookup = false;  // tokens may be drafted ahead
  EmbeddingRules embedding = {};
  bool begins_in_thoughts = false;            // what the model answers in a chat
  SamplingParams defaults{.temperature = 1};  // what holds where a request says nothing
  UnknownParameters* unknown = nullptr;       // null: they are refused
};

// `where` names the request in errors. Throws Error(refused) for a body that is none or has
// parameters that are not known here, Error(usage) for values that cannot be.
Completion parse_completion(const OrderedJson& body, const std::string& where,
                            const RequestContext& context);

// A text, a list of token ids, or a list of texts and of such lists. Error(refused) that names
// `key`.
std::vector<std::vector<int32_t>> read_prompts(const OrderedFields& body, const char* key,
                                               const Checkpoint& checkpoint);

// The most bytes that a completion takes from admission to response: the request, once here and
// once in the engine, its sequences, and their results with `tokens` tokens each. `longest_token`:
// bytes.
uint64_t held_bytes(const Completion& asked, int64_t longest_token, int64_t tokens);
// Bytes of the longest token's text; 0 without a tokenizer.
int64_t longest_token(const Tokenizer* tokenizer);

// Tokens, of all prompts and choices of a request.
struct Usage {
  int64_t prompt_tokens = 0;
  std::optional<int64_t> cached_tokens = {};  // of these, found in the KV cache; none: not told
  int64_t completion_tokens = 0;

  // A prompt of so many tokens, and what came of it.
  void add(int64_t prompt, std::span<const RequestResult> results);
};
void write_usage(JsonWriter& json, const Usage& usage);

struct CompletionHead {
  std::string id = {};
  std::string model = {};
  int64_t created = 0;       // Unix time, seconds
  bool tells_cached = true;  // how many tokens were found depends on what ran before
};
// The body of a response. `results`: for each of the prompts one for each of its n.
void write_completion(JsonWriter& json, const CompletionHead& head, const Completion& asked,
                      std::vector<std::vector<RequestResult>> results, const Tokenizer* tokenizer);

// The body of a response that says what was wrong with the request.
Json api_error_json(const std::string& message);

}  // namespace sluice
