// The completions API of OpenAI, with vLLM's further sampling parameters: the body of a request to
// what the engine takes, and what comes out to the body of the response.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/base/json_writer.h"
#include "src/engine/request.h"
#include "src/engine/session.h"

namespace sluice {

// A parsed request, and the form of its answer.
struct Completion {
  Request request;  // but for its prompt
  std::vector<std::vector<int32_t>> prompts;
  int64_t choices = 1;  // returned of a request's n, by highest logprob a token
  bool echo = false;    // each choice begins with its prompt

  // For the engine, of one of the prompts.
  Request request_of(size_t prompt) const;
  int64_t longest_prompt() const;  // tokens
};

// `where` names the request in errors. Throws Error(refused) for a body that is none or has
// parameters that are not known here, Error(usage) for values that cannot be.
Completion parse_completion(const Json& body, const std::string& where, const Session& session);

// The most bytes that a completion takes from admission to response: the request, once here and
// once in the engine, its sequences, and their results. `longest_token`: bytes.
uint64_t held_bytes(const Completion& asked, int64_t longest_token);
// Bytes of the longest token's text; 0 without a tokenizer.
int64_t longest_token(const Tokenizer* tokenizer);

struct CompletionHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix time, seconds
};
// The body of a response. `results`: for each of the prompts one for each of its n.
void write_completion(JsonWriter& json, const CompletionHead& head, const Completion& asked,
                      std::vector<std::vector<RequestResult>> results, const Tokenizer* tokenizer);

// The body of a response that says what was wrong with the request.
Json api_error_json(const std::string& message);

}  // namespace sluice
