// Structured output: what the body of a request says that the text must match.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/base/json.h"
#include "src/engine/checkpoint.h"

namespace sluice {

// A source, and the parameter that it is from.
struct AskedText {
  grammar::GrammarSource source;
  std::string where;
};

// Reads OpenAI's response_format, vLLM's structured_outputs and the older guided_json,
// guided_regex, guided_choice and guided_grammar; nullopt where none is given. Error(refused) that
// names the parameter; Error(usage) for more than one of them.
std::optional<AskedText> asked_text(const OrderedFields& body);
// The same as the grammar of a whole text; null: there is none. Error(refused) also names the
// keyword of a schema.
std::shared_ptr<const grammar::TokenGrammar> grammar_of(const OrderedFields& body,
                                                        const Checkpoint& checkpoint);

}  // namespace sluice
