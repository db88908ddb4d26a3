// The completions API of OpenAI, with vLLM's further sampling parameters: the body of a request to
// what the engine takes, and what comes out to the body of the response.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/engine/request.h"
#include "src/engine/session.h"

namespace sluice {

// What is asked for, and how the answer is to look.
struct Completion {
  std::vector<Request> requests;  // one for each prompt
  int64_t choices = 1;            // of a request's n, those with the highest logprob a token
  bool echo = false;              // each choice begins with its prompt
};

// `where` names the request in errors. Throws Error(refused) for a body that is none or has
// parameters that are not known here, Error(usage) for values that cannot be.
Completion parse_completion(const Json& body, const std::string& where, const Session& session);

struct CompletionHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix time, seconds
};
// `results`: for each of the requests one for each of its n.
Json completion_json(const CompletionHead& head, const Completion& asked,
                     std::vector<std::vector<RequestResult>> results, const Tokenizer* tokenizer);

// The body of a response that says what was wrong with the request.
Json api_error_json(const std::string& message);

}  // namespace sluice
