// The error that a client gets instead of an answer.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice {

// The shape of errors, and of access.
enum class Dialect : uint8_t { openai, anthropic };

struct Refusal : std::runtime_error {
  Refusal(int http_status, const std::string& message, std::string error_code = {}, int seconds = 0)
      : std::runtime_error(message),
        status(http_status),
        code(std::move(error_code)),
        retry_after(seconds) {}

  int status;
  std::string code;               // OpenAI's, such as "model_not_found"; empty: none
  int retry_after = 0;            // seconds; 0: to try again is of no use, or the client knows when
  std::string_view headers = {};  // further lines of the answer's head, each with its end; static
};

// An Error of reading or beginning a request: the request's fault, unless its kind is runtime.
Refusal refusal_of(const Error& error);

// Refuses a request that takes so many bytes, where all requests may take `all` and others have too
// much of it now.
Refusal no_room(uint64_t bytes, uint64_t all);

// {"error": {...}}, in the form of the API. Anthropic's names the request, where there is an id.
Json refusal_json(Dialect dialect, const Refusal& refusal, std::string_view request_id = {});

}  // namespace sluice
