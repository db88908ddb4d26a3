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

// `where` names the request in errors. Throws Error(refused) for a body that is none or has
// parameters that are not known here, Error(usage) for values that cannot be.
Request parse_completion(const Json& body, const std::string& where, const Session& session);

struct CompletionHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix time, seconds
};
// One result for each of the request's n, in their order.
Json completion_json(const CompletionHead& head, const std::vector<RequestResult>& results,
                     int64_t prompt_tokens, const Tokenizer* tokenizer);

// The body of a response that says what was wrong with the request.
Json api_error_json(const std::string& message);

}  // namespace sluice
