#include "src/jinja/characters.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <utility>

#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

UChar32 uchar(char32_t c) { return static_cast<UChar32>(c); }

int numeric_type(char32_t c) { return u_getIntPropertyValue(uchar(c), UCHAR_NUMERIC_TYPE); }

bool all_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

template <class Ascii, class Unicode>
std::string map_text(std::string_view text, Ascii ascii, Unicode unicode) {
  std::string result;
  if (all_ascii(text)) {
    result.resize(text.size());
    std::ranges::transform(text, result.begin(), ascii);
    return result;
  }
  icu::UnicodeString mapped = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  unicode(mapped);
  mapped.toUTF8String(result);
  return result;
}

char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char upper_ascii(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return is_white_space(c);
}

bool is_alpha(char32_t c) { return (U_GET_GC_MASK(uchar(c)) & U_GC_L_MASK) != 0; }
bool is_decimal(char32_t c) { return numeric_type(c) == U_NT_DECIMAL; }
bool is_digit(char32_t c) {
  return numeric_type(c) == U_NT_DECIMAL || numeric_type(c) == U_NT_DIGIT;
}
bool is_numeric(char32_t c) { return numeric_type(c) != U_NT_NONE; }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_upper(char32_t c) { return u_hasBinaryProperty(uchar(c), UCHAR_UPPERCASE); }
bool is_lower(char32_t c) { return u_hasBinaryProperty(uchar(c), UCHAR_LOWERCASE); }
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || u_charType(uchar(c)) == U_TITLECASE_LETTER;
}

bool is_printable(char32_t c) {
  constexpr uint32_t kHidden = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK |
                               U_GC_CN_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_ZS_MASK;
  return c == ' ' || (U_GET_GC_MASK(uchar(c)) & kHidden) == 0;
}

std::string upper(std::string_view text) {
  return map_text(text, upper_ascii,
                  [](icu::UnicodeString& t) { t.toUpper(icu::Locale::getRoot()); });
}

std::string lower(std::string_view text) {
  return map_text(text, lower_ascii,
                  [](icu::UnicodeString& t) { t.toLower(icu::Locale::getRoot()); });
}

std::string fold_case(std::string_view text) {
  return map_text(text, lower_ascii, [](icu::UnicodeString& t) { t.foldCase(); });
}

// Returns the titlecase of a text that is taken as one word.
std::string title_character(std::string_view character) {
  return map_text(character, upper_ascii, [](icu::UnicodeString& t) {
    t.toTitle(nullptr, icu::Locale::getRoot(), U_TITLECASE_WHOLE_STRING);
  });
}

size_t byte_of(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size() && index > 0; --index) {
    const auto first = static_cast<unsigned char>(text[at]);
    at += first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  }
  return at;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = utf8_char_at(text, 0);
    if (!is_space(c.code_point)) break;
    text.remove_prefix(static_cast<size_t>(c.bytes));
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = utf8_char_before(text, text.size());
    if (!is_space(c.code_point)) break;
    text.remove_suffix(static_cast<size_t>(c.bytes));
  }
  return text;
}

std::string_view take_line(std::string_view& text, bool keep) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    size_t end = at + static_cast<size_t>(c.bytes);
    if (ends_line(c.code_point)) {
      if (c.code_point == '\r' && end < text.size() && text[end] == '\n') ++end;
      const std::string_view line = text.substr(0, keep ? end : at);
      text.remove_prefix(end);
      return line;
    }
    at = end;
  }
  return std::exchange(text, {});
}

}  // namespace sluice::jinja
