// The completions API of OpenAI, with vLLM's further sampling parameters: the body of a request to
// what the engine takes, and what comes out to the body of the response.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/engine/request.h"
#include "src/engine/session.h"

namespace sluice {

// What is asked for, and how the answer is to look.
struct Completion {
  Request request;
  int64_t choices = 1;  // of the request's n, those with the highest logprob a token
  bool echo = false;    // the answer begins with the prompt
};

// `where` names the request in errors. Throws Error(refused) for a body that is none or has
// parameters that are not known here, Error(usage) for values that cannot be.
Completion parse_completion(const Json& body, const std::string& where, const Session& session);

struct CompletionHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix time, seconds
};
// A result for each of the request's n. `prompt`: the request's.
Json completion_json(const CompletionHead& head, const Completion& asked,
                     std::vector<RequestResult> results, std::span<const int32_t> prompt,
                     const Tokenizer* tokenizer);

// The body of a response that says what was wrong with the request.
Json api_error_json(const std::string& message);

}  // namespace sluice
