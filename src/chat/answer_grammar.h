// The grammar of a chat's whole answer, as a composition of grammars (src/grammar/composition.h):
// thoughts first, where the model has any, then a text of a form that the request asks for, or
// calls of tools as the model's template writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/call_form.h"

namespace sluice {

// A tool that may be called.
struct CallableTool {
  std::string name;
  nlohmann::ordered_json schema;  // of its arguments, an object; null: it takes none
  bool strict = false;            // arguments must be valid; else they are where that can be
};

struct AnswerRules {
  std::vector<CallableTool> tools;   // empty: no calls
  bool must_call = false;            // nothing but calls
  bool one_call = false;             // at most one
  nlohmann::ordered_json text = {};  // a composition of what a text must be; null: it may be any
  const CallForm* form = nullptr;    // of calls; null: as the template shows them
  bool begins_in_thoughts = false;   // see AnswerHints
};

// Makes the composition for an answer to a prompt that ends with `prompt`, by a model of this
// template. Error(refused), which begins with `where`, where calls are restricted whose form is not
// known, and for tools whose names or schemas have none in that form.
nlohmann::ordered_json answer_composition(std::string_view chat_template, std::string_view prompt,
                                          const AnswerRules& rules, const std::string& where);

}  // namespace sluice
