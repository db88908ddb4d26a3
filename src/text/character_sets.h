// The character sets of Oniguruma with Unicode 16, as what stands between [ and ] in a pattern for
// PCRE2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// PCRE2's own \s has U+180E, which is no white space since Unicode 6.3.
inline constexpr std::string_view kWhiteSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";
inline constexpr std::string_view kNotWhiteSpaceSet =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
inline constexpr std::string_view kHexDigitSet = "0-9A-Fa-f";
// Oniguruma's \w, outside of [...] only, also takes the numbers of Latin-1: ² ³ ¹ ¼ ½ ¾.
inline constexpr std::string_view kLatin1NumberSet = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

// A general category by its short name, "L" or "Lu". C and Cn still hold the characters that are
// newer than PCRE2's tables.
std::string category_set(std::string_view name);
// Punctuation for pre-tokenizers: that of Unicode 8, and all of ASCII's.
std::string punctuation_set();
// \w: Alphabetic, marks, decimal digits, connector punctuation.
std::string word_set();
// [:name:]; nullopt for a name that is none.
std::optional<std::string> posix_set(std::string_view name);
// \p{name}: a general category, short or long, a script, or a property. nullopt for what cannot be
// a name; whether a script exists, PCRE2 finds out.
std::optional<std::string> property_set(std::string_view name);

}  // namespace sluice
