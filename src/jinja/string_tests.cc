#include "src/jinja/string_tests.h"

#include <algorithm>

#include "src/jinja/characters.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

bool all(std::string_view text, bool (*holds)(char32_t)) {
  return !text.empty() && std::ranges::all_of(code_points(text), holds);
}

// Some letter has this case, and none another.
bool has_case(std::string_view text, bool (*right)(char32_t)) {
  bool any = false;
  for (char32_t c : code_points(text)) {
    if (is_cased(c) && !right(c)) return false;
    any |= right(c);
  }
  return any;
}

}  // namespace

bool all_alnum(std::string_view text) { return all(text, is_alnum); }
bool all_alpha(std::string_view text) { return all(text, is_alpha); }
bool all_decimal(std::string_view text) { return all(text, is_decimal); }
bool all_digits(std::string_view text) { return all(text, is_digit); }
bool all_numeric(std::string_view text) { return all(text, is_numeric); }
bool all_space(std::string_view text) { return all(text, is_space); }
bool all_printable(std::string_view text) { return text.empty() || all(text, is_printable); }
bool all_in_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_identifier(std::string_view text) {
  const std::u32string points = code_points(text);
  auto begins = [](char32_t c) { return c == '_' || is_alpha(c); };
  return !points.empty() && begins(points[0]) &&
         std::ranges::all_of(points, [&](char32_t c) { return begins(c) || is_decimal(c); });
}

bool is_lower_case(std::string_view text) { return has_case(text, is_lower); }
bool is_upper_case(std::string_view text) { return has_case(text, is_upper); }

// Capitals follow what has no case, and small letters what has one.
bool is_title_case(std::string_view text) {
  bool any = false, inside = false;
  for (char32_t c : code_points(text)) {
    const bool capital = is_cased(c) && !is_lower(c);
    if ((capital && inside) || (is_lower(c) && !inside)) return false;
    inside = is_cased(c);
    any |= inside;
  }
  return any;
}

}  // namespace sluice::jinja
