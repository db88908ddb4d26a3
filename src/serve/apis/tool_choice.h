// Tools of a request: which the model may call, and whether it must.
#pragma once

#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/chat/answer_grammar.h"

namespace sluice {

struct ToolChoice {
  bool none = false;                    // there are no tools, or none may be called
  bool must_call = false;               // at least one
  bool one_call = false;                // at most one
  std::vector<std::string> names = {};  // of those that may be called; empty: all
};

// Reads OpenAI's `tools`, `tool_choice` and `parallel_tool_calls`. Error(refused) for invalid ones.
ToolChoice tool_choice_of(const OrderedFields& body);

// The tools that may be called, where the choice or a tool says what an answer has to be; else
// nothing: a limit to one call alone leaves the model's own words as they are, and further calls
// are left out. `choice` is that of the body. Error(refused).
std::vector<CallableTool> callable_tools(const OrderedFields& body, const ToolChoice& choice);

}  // namespace sluice
