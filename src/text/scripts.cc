#include "src/text/scripts.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include "src/base/error.h"

namespace sluice {

std::optional<int32_t> script_of(char32_t c) {
  constexpr uint8_t kNewest = 9;  // version of Unicode
  const auto character = static_cast<UChar32>(c);
  UVersionInfo age;
  u_charAge(character, age);
  UErrorCode status = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(character, &status);
  check(U_SUCCESS(status), u_errorName(status));
  if (c == ' ' || age[0] > kNewest || script == USCRIPT_UNKNOWN) return std::nullopt;
  switch (c) {
    case 0x30FC:  // the sign for a long vowel
      return USCRIPT_HAN;
    case 0x589:  // had other scripts then
    case 0x61C:
      return USCRIPT_COMMON;
    case 0x953:
    case 0x954:
      return USCRIPT_DEVANAGARI;
    default:
      return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
  }
}

}  // namespace sluice
