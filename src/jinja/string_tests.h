// Python's str.isalpha(), str.isdigit() and the like.
#pragma once

#include <string_view>

namespace sluice::jinja {

bool all_alnum(std::string_view text);
bool all_alpha(std::string_view text);
bool all_in_ascii(std::string_view text);
bool all_decimal(std::string_view text);
bool all_digits(std::string_view text);
bool all_numeric(std::string_view text);
bool all_printable(std::string_view text);
bool all_space(std::string_view text);
bool is_identifier(std::string_view text);
bool is_lower_case(std::string_view text);
bool is_upper_case(std::string_view text);
bool is_title_case(std::string_view text);

}  // namespace sluice::jinja
