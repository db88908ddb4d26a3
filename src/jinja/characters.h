// Python's rules for characters and text (str).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

bool is_space(char32_t c);  // str.isspace, and \s of regular expressions
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);
bool is_printable(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string fold_case(std::string_view text);
std::string title_character(std::string_view character);

// The byte at which character `index` of `text` begins; its size where it has no more.
size_t byte_of(std::string_view text, size_t index);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

// Lines without their ends, as str.splitlines() cuts them; with ends if `keep`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep = false);

}  // namespace sluice::jinja
