// Reading of text by ASCII separators, spaces, digits and letters.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice {

// The text between separators: one more than there are separators.
std::vector<std::string_view> split_text(std::string_view text, char separator);
// The text up to `mark`, which is removed with it; the whole where there is none.
std::string_view take_until(std::string_view& text, char mark);
// The text without spaces, tabs and ends of lines around it.
std::string_view trim(std::string_view text);
std::string lower_ascii(std::string_view text);
// The value of a hexadecimal digit; -1 for another character.
int hex_digit(char32_t c);
// The smallest number of characters to insert, remove, exchange with a neighbour or replace that
// makes one text the other (restricted Damerau-Levenshtein distance).
size_t edit_distance(std::string_view a, std::string_view b);

// The whole text as a number in range; nullopt where it is none.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, status] = std::from_chars(text.data(), end, number);
  return status == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

}  // namespace sluice
