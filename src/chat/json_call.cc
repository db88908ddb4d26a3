#include "src/chat/json_call.h"

#include <algorithm>

#include "src/base/json.h"

namespace sluice {
namespace {

using PartKind = AnswerPart::Kind;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The text of a JSON string; empty for everything else.
std::string string_of(const std::string& json) {
  const Json value = Json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Some models write the object as a string, or null for none.
std::string arguments_of(const std::string& json) {
  if (json == "null") return "{}";
  return json.starts_with('"') ? string_of(json) : json;
}

}  // namespace

bool JsonSpan::take(char c) {
  const bool scalar = depth_ == 0 && !quoted_ && !text_.empty();
  if (scalar && (is_space(c) || c == ',' || c == '}' || c == ']')) {
    done_ = true;
    return false;
  }
  text_ += c;
  if (quoted_) {
    if (!escaped_ && c == '"') quoted_ = false;
    escaped_ = !escaped_ && c == '\\';
  } else if (c == '"') {
    quoted_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
  }
  const char first = text_.front();
  done_ =
      !quoted_ && depth_ == 0 && text_.size() > 1 && (first == '"' || first == '{' || first == '[');
  return true;
}

JsonCall::State JsonCall::take(char c, std::vector<AnswerPart>& parts) {
  const bool inside = (at_ == At::key || at_ == At::value) && !span_.text().empty();
  if (!inside && is_space(c)) return State::more;
  if (at_ == At::next || (at_ == At::key && span_.text().empty() && c == '}')) {
    if (c == '}') return close(parts);
    at_ = At::key;
    return c == ',' ? State::more : State::broken;
  }
  if (at_ == At::open || at_ == At::colon) return take_outside(c);
  if (at_ == At::key && !inside && c != '"') return State::broken;
  const bool taken = span_.take(c);
  if (at_ == At::value && span_.text().size() == 1)
    streams_ = c == '{' && holds_arguments() && named() && !given_;
  if (streams_) give(parts, PartKind::arguments, {&c, 1});
  if (!span_.done()) return State::more;
  const State state = end_value(parts);
  return taken || state != State::more ? state : take(c, parts);
}

JsonCall::State JsonCall::take_outside(char c) {
  if (c != (at_ == At::open ? '{' : ':')) return State::broken;
  at_ = at_ == At::open ? At::key : At::value;
  return State::more;
}

JsonCall::State JsonCall::end_value(std::vector<AnswerPart>& parts) {
  const std::string json = std::exchange(span_, {}).text();
  if (at_ == At::key) {
    key_ = string_of(json);
    at_ = At::colon;
    return State::more;
  }
  at_ = At::next;
  if (streams_) {
    streams_ = false;
    given_ = true;
  } else if ((key_ == "name" || key_ == "tool_name") && !named()) {
    const std::string name = string_of(json);
    const bool known = known_.empty() || std::ranges::find(known_, name) != known_.end();
    if (name.empty() || !known) return State::broken;
    name_ = name;
    give(parts, PartKind::call, name_);
    given_ = !arguments_.empty();
    give(parts, PartKind::arguments, arguments_);
  } else if (holds_arguments() && !given_) {
    arguments_ = arguments_of(json);
    given_ = named();
    if (named()) give(parts, PartKind::arguments, arguments_);
  }
  return State::more;
}

JsonCall::State JsonCall::close(std::vector<AnswerPart>& parts) {
  if (!named()) return State::broken;
  if (!given_) give(parts, PartKind::arguments, "{}");
  return State::done;
}

}  // namespace sluice
