// A call of a tool that a model writes as JSON: {"name": NAME, "arguments": {...}}, or with the
// keys "tool_name" and "parameters".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/chat/answer_part.h"

namespace sluice {

// Finds the end of a JSON value by its quotes and brackets. Whether the rest is JSON is not
// checked: a client gets the arguments that the model wrote.
class JsonSpan {
 public:
  // Takes the next character. False: the value ended before it (of numbers and words only the next
  // character tells).
  bool take(char c);
  bool done() const { return done_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
  bool quoted_ = false, escaped_ = false, done_ = false;
};

// Reads such an object character by character.
class JsonCall {
 public:
  enum class State { more, done, broken };  // broken: this is no call

  // `known`: names of tools; empty: a call may have any.
  explicit JsonCall(std::vector<std::string> known = {}) : known_(std::move(known)) {}

  // Gives the name and the arguments, in this order, as far as they are certain.
  State take(char c, std::vector<AnswerPart>& parts);
  bool named() const { return !name_.empty(); }

 private:
  enum class At { open, key, colon, value, next };
  State take_outside(char c);
  State end_value(std::vector<AnswerPart>& parts);
  State close(std::vector<AnswerPart>& parts);
  bool holds_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  std::vector<std::string> known_;
  At at_ = At::open;
  JsonSpan span_;  // the present key or value
  std::string key_, name_, arguments_;
  bool streams_ = false;  // the present value is given as it comes
  bool given_ = false;    // arguments are, or were
};

}  // namespace sluice
