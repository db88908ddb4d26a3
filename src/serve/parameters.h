// The parameters that the body of a request may have.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice {

// Error(refused) for a parameter that is not known here, and for one that asks for what is not
// supported. null is as if it were not there.
void check_parameters(const Json& body, const std::string& where);

}  // namespace sluice
