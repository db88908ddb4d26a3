#include "src/jinja/string_tests.h"

#include <algorithm>

#include "src/jinja/characters.h"

namespace sluice::jinja {
namespace {

bool all(std::string_view text, bool (*holds)(char32_t)) {
  return !text.empty() && all_characters(text, holds);
}

// Some letter has this case, and none another.
bool has_case(std::string_view text, bool (*right)(char32_t)) {
  bool any = false;
  const bool none_another = all_characters(text, [&](char32_t c) {
    any |= right(c);
    return right(c) || !is_cased(c);
  });
  return any && none_another;
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
  auto begins = [](char32_t c) { return c == '_' || is_alpha(c); };
  return !text.empty() && begins(utf8_char_at(text, 0).code_point) &&
         all_characters(text, [&](char32_t c) { return begins(c) || is_decimal(c); });
}

bool is_lower_case(std::string_view text) { return has_case(text, is_lower); }
bool is_upper_case(std::string_view text) { return has_case(text, is_upper); }

// Capitals follow what has no case, and small letters what has one.
bool is_title_case(std::string_view text) {
  bool any = false, inside = false;
  const bool fits = all_characters(text, [&](char32_t c) {
    const bool capital = is_cased(c) && !is_lower(c);
    if ((capital && inside) || (is_lower(c) && !inside)) return false;
    inside = is_cased(c);
    any |= inside;
    return true;
  });
  return any && fits;
}

}  // namespace sluice::jinja
