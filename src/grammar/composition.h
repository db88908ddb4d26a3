// Grammars put together: what the whole answer of a chat may be, with its thoughts, tags and calls.
//
// A composition is JSON. A part is an object of one of these:
//   {"text": S}                        just this
//   {"token": S}                       the special token S; its text, where the tokenizer has none
//   {"without": S}                     any text in which S, as "token" has it, does not occur
//   {"space": N}                       at most N blanks and line breaks
//   {"schema": V, "of": S}             JSON that is valid by the schema V; S names it in errors
//   {"schema": V, "or": PART}          the same; PART where V has what is not supported
//   {"schema": V, "end": S}            the same of strings as they are, in which S, as "token" has
//                                      it, does not occur, and of null
//   {"root": V, "part": PART}          PART, in which schemas are parts of V: "#" refers to V
//   {"source": K, "text": S}           a source of a kind: json_object, json_schema, regex, choice,
//                                      gbnf; where it is JSON, "json": V may have its value
//   {"sequence": [PART...]}, {"choice": [PART...]}
//   {"repeat": PART, "low": N, "high": M}   without "high" as often as it comes; with "between":
//                                           PART that one between two of them
#pragma once

#include <string_view>

#include "src/grammar/grammars.h"
#include "src/grammar/json_text.h"

namespace sluice::grammar {

// Returns the name that a composition uses; empty for compositions.
std::string_view name_of(SourceKind kind);

// Error(refused) for what is no composition, and for what its sources refuse. The first character
// of what "without" names must not be there again.
Expr composition(GrammarBuilder& builder, const OrderedJson& part, const IsSpecial& is_special);

}  // namespace sluice::grammar
