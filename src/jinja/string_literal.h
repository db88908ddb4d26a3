// The text of a template's string literal.
#pragma once

#include <string>
#include <string_view>

namespace sluice::jinja {

// `literal` without its quotes. Escapes are Python's; an unknown one stays as it is.
std::string read_string_literal(std::string_view literal);

}  // namespace sluice::jinja
