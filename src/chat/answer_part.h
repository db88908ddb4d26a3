// Parts of a model's answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct AnswerPart {
  enum class Kind {
    content,
    reasoning,
    call,       // of a tool: its name
    arguments,  // of the last call: some of its JSON text
  };
  Kind kind = Kind::content;
  std::string text;
  std::string id = {};  // of a call, that the model wrote; empty: none
};

// Appends to the last part where that is of the same kind. A call is a part of its own.
inline void give(std::vector<AnswerPart>& parts, AnswerPart::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool joins = !parts.empty() && parts.back().kind == kind && kind != AnswerPart::Kind::call;
  if (joins)
    parts.back().text += text;
  else
    parts.push_back({kind, std::string(text), {}});
}

}  // namespace sluice
