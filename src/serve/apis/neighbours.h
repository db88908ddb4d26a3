// The parameters of other servers in the names that are read here: llama.cpp's, Ollama's, SGLang's,
// OpenRouter's and those of front ends.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice {

// Gives the members of a body our names. A parameter that is there under our name, too, counts.
// `chat`: it is a conversation, whose thoughts may be switched. Error(refused) for an object that
// takes long to read.
void put_in_our_names(OrderedJson& body, const std::string& where, bool chat);

}  // namespace sluice
