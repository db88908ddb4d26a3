// The formats of strings in JSON schemas, as regular expressions.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::grammar {

// All that matches is of that format. Empty: not known.
std::string_view format_pattern(std::string_view format);
// The same for texts whose lengths other rules limit: without limits of its own.
std::string_view unlimited_format_pattern(std::string_view format);
// All texts that match format_pattern() have from `low` to `high` characters.
bool format_has_lengths(std::string_view format, uint32_t low, uint32_t high);

}  // namespace sluice::grammar
