// The formats of strings in JSON schemas, as regular expressions.
#pragma once

#include <string_view>

namespace sluice::grammar {

// All that matches is of that format; not all of the format matches (no leap days, for one).
// Empty: not known.
std::string_view format_pattern(std::string_view format);

}  // namespace sluice::grammar
