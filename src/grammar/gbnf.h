// Grammars in GBNF, the notation of llama.cpp (grammars/README.md there).
#pragma once

#include <string_view>

#include "src/grammar/characters.h"

namespace sluice::grammar {

// The texts of the rule `root`. Rules `name ::= alternative | ...` of "literals", [sets], `.` (any
// character), names, groups, and * + ? {n} {n,} {n,m}; comments begin with #. A rule goes on in the
// next line within a group, and after | or ::=. Error(refused) that names the place for what is
// none.
Expr gbnf(GrammarBuilder& builder, std::string_view text);

}  // namespace sluice::grammar
