// Regular expressions: what ECMAScript's and Python's have in common.
#pragma once

#include <string_view>

#include "src/grammar/characters.h"

namespace sluice::grammar {

enum class Match : uint8_t {
  whole,   // a text matches from its beginning to its end
  within,  // some part of it matches, as JSON schema's `pattern` has it; ^ and $ say otherwise
};

// Texts that match `pattern`, their characters written in `alphabet`. Alternatives, groups, sets,
// quantifiers (lazy ones match the same texts), \d \w \s and their complements (\d and \w are
// ASCII's, \s is ECMAScript's), escapes, and ^ and $ where an alternative of the whole begins and
// ends; look-ahead that is not repeated. Error(refused), which names the place, for anything else:
// look-behind, back references, \b, \p{...}, flags.
Expr regex(GrammarBuilder& builder, std::string_view pattern, Alphabet alphabet, Match match);

}  // namespace sluice::grammar
