// Python's rules for characters and text (str).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/text/utf8.h"

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

// Returns whether `holds` is true of every character.
template <class Holds>
bool all_characters(std::string_view text, Holds&& holds) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    if (!holds(c.code_point)) return false;
    at += static_cast<size_t>(c.bytes);
  }
  return true;
}

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

// Removes the first line from a text and returns it without its end, as str.splitlines() cuts them;
// with its end if `keep`.
std::string_view take_line(std::string_view& text, bool keep = false);

}  // namespace sluice::jinja
