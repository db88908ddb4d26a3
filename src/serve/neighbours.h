// The parameters of other servers in the names that are read here: llama.cpp's, Ollama's, SGLang's,
// OpenRouter's and those of front ends.
#pragma once

#include <string>
#include <string_view>

#include "src/base/json.h"

namespace sluice {

// The body in our names; empty: it has none of others. A parameter that is there under our name,
// too, counts. `json`: the same body, parsed. `chat`: it is a conversation, whose thoughts may be
// switched. Error(refused) for an object that takes long to order.
std::string in_our_names(std::string_view text, const Json& json, const std::string& where,
                         bool chat);

}  // namespace sluice
