#include "src/text/character_maps.h"

#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/text/byte_alphabet.h"
#include "src/text/unicode_additions.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

bool in(const icu::UnicodeSet& set, char32_t c) { return set.contains(static_cast<UChar32>(c)); }

icu::UnicodeSet make_set(const char* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), status);
  check(U_SUCCESS(status), u_errorName(status));
  set.freeze();
  return set;
}

// Others than ASCII's.
const icu::UnicodeSet& controls() {
  static const icu::UnicodeSet set =
      make_set("[[[:Cc:][:Cf:][:Co:]-[\\t\\n\\r]]&[:age=8.0:]\\u0000\\uFFFD]");
  return set;
}

}  // namespace

void lower_case(char32_t c, std::string& text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only character with two for its lower case
  if (c == kCapitalIWithDot) {
    text += "i\xCC\x87";
    return;
  }
  char32_t lower = static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
  append_utf8(lower == c && c >= 0x80 ? lower_case_after_unicode_15(c) : lower, text);
}

void clean(char32_t c, std::string& text) {
  if (c >= 0x20 && c < 0x7F) {
    text += static_cast<char>(c);
  } else if (!in(controls(), c)) {
    append_utf8(is_white_space(c) ? U' ' : c, text);
  }
}

void set_apart_ideographs(char32_t c, std::string& text) {
  constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                 {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  const bool apart =
      std::ranges::any_of(kRanges, [&](auto range) { return c >= range.first && c <= range.last; });
  if (apart) text += ' ';
  append_utf8(c, text);
  if (apart) text += ' ';
}

void strip_marks(char32_t c, std::string& text) {
  static const icu::UnicodeSet set = make_set("[[[:M:]&[:age=9.0:]-[\\U000111C9]]\\u1CF2\\u1CF3]");
  if (c < 0x80 || !in(set, c)) append_utf8(c, text);
}

void strip_nonspacing_marks(char32_t c, std::string& text) {
  static const icu::UnicodeSet set =
      make_set("[[[:Mn:]&[:age=8.0:]-[\\u1885\\u1886\\uA9BD\\U000111C9]]\\u1734]");
  if (c < 0x80 || !in(set, c)) append_utf8(c, text);
}

void write_bytes(char32_t c, std::string& text) {
  std::string bytes;
  append_utf8(c, bytes);
  append_byte_characters(bytes, text);
}

void clean_nmt(char32_t c, std::string& text) {
  static const icu::UnicodeSet removed =
      make_set("[\\u0001-\\u0008\\u000B\\u000E-\\u001F\\u007F\\u008F\\u009F]");
  static const icu::UnicodeSet spaces =
      make_set("[\\t\\n\\u000C\\r\\u1680\\u200B-\\u200F\\u2028\\u2029\\u2581\\uFEFF\\uFFFD]");
  if (!in(removed, c)) append_utf8(in(spaces, c) ? U' ' : c, text);
}

}  // namespace sluice
