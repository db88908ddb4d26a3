// Requests of OpenAI's responses API, as requests for chat completions.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice {

// The body of a request to /v1/chat/completions that asks for the same. Nothing is
// kept between requests: Error(refused) that begins with `where` for what refers to an earlier one,
// for what is no such request, and for what there is not.
OrderedJson chat_of_responses(OrderedJson body, const std::string& where);

// Returns the members of such a request that an answer repeats, or others in their place; nothing
// for any other request.
Json response_echo(const OrderedJson& body);

}  // namespace sluice
