// Characters as the bytes that a text has for them.
#pragma once

#include "src/grammar/builder.h"

namespace sluice::grammar {

// Ways to write characters.
enum class Alphabet : uint8_t {
  text,         // UTF-8
  json_string,  // in a JSON string: with the escapes that it needs, each in its shortest form
};

Expr characters(GrammarBuilder& builder, const CharRanges& ranges, Alphabet alphabet);
Expr any_character(GrammarBuilder& builder, Alphabet alphabet);

}  // namespace sluice::grammar
