// Requests of Anthropic's messages API, as requests for chat completions.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice {

// The body of a request to /v1/chat/completions that asks for the same. Error(refused) that begins
// with `where` for what is no such request, or asks for what there is not. `generates`: it has to
// say max_tokens, as it is not only counted.
OrderedJson chat_of_messages(OrderedJson body, const std::string& where, bool generates);

}  // namespace sluice
