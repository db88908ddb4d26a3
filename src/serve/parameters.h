// The parameters that the body of a request may have.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/json.h"

namespace sluice {

// Of OpenAI's APIs: a line of a file of completions, completions, and chat completions.
enum class Api : uint8_t { batch, completions, chat };

// Error(refused) for a parameter that is not known to the API, and for one that asks for what is
// not supported. null is as if it were not there.
void check_parameters(const Json& body, const std::string& where, Api api);

}  // namespace sluice
