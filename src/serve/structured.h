// Structured output: what the body of a request says that the text must match.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/json.h"
#include "src/engine/session.h"

namespace sluice {

// Of OpenAI's response_format, vLLM's structured_outputs and the older guided_json, guided_regex,
// guided_choice and guided_grammar; null where none asks for anything. Error(refused) that names
// the parameter, and of a schema the keyword; Error(usage) for more than one of them.
std::shared_ptr<const grammar::TokenGrammar> grammar_of(const JsonFields& body,
                                                        const Session& session);

// Members come in the order of a schema's text, which Json does not keep: puts in the place of each
// schema of `body` its text. `text` is what body was parsed from; where `is_line`, the value of its
// member "body".
void keep_schema_order(Json& body, std::string_view text, bool is_line);

}  // namespace sluice
