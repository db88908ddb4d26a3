// Oniguruma's regular expressions, as tokenizer.json holds them, in PCRE2's words. Oniguruma itself
// has no partial matches, which a text that arrives in pieces needs.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Returns a pattern for PCRE2 (options UTF, UCP, MULTILINE) that matches what `oniguruma` matches
// with the syntax ONIG_SYNTAX_ONIGURUMA and Unicode 16. The dialects differ in, among others: \s
// and \w, \h, \v, {n,m}+ (no possessive quantifier in Oniguruma), {n}? and {,n}. Throws
// Error(refused), which begins with `where` and names the construct, for one that cannot be
// translated. Only scripts and properties that are no categories know no characters newer than
// PCRE2's tables.
std::string pcre2_pattern(std::string_view oniguruma, std::string_view where);

// A pattern that matches just `text`.
std::string pcre2_literal(std::string_view text);

// Throws Error(refused): what is wrong with the pattern, the pattern itself, and where it stands.
[[noreturn]] void refuse_pattern(std::string_view oniguruma, std::string_view where,
                                 std::string_view reason);

}  // namespace sluice
