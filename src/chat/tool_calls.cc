#include "src/chat/tool_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/chat/tags.h"

namespace sluice {
namespace {

using PartKind = AnswerPart::Kind;

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kLongestName = 256;

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>", kValueEnd = "</arg_value>";
constexpr std::string_view kCallId = "[CALL_ID]", kDeepSeekSeparator = "<｜tool▁sep｜>";
// What ends a name that no tag is around.
constexpr std::array<std::string_view, 6> kNameEnds{
    "[ARGS]", kCallId, kDeepSeekSeparator, "<|tool_call_argument_begin|>", kKey, "{"};

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// Whether `text` may become `tag` when more comes.
bool may_become(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

std::string show(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Kimi writes functions.NAME:INDEX, DeepSeek's older models NAME and a line of Markdown.
std::string_view plain_name(std::string_view text) {
  text = trim(text);
  text = trim(text.substr(0, text.find('\n')));
  if (text.starts_with("functions.")) {
    text.remove_prefix(std::string_view("functions.").size());
    text = text.substr(0, text.rfind(':'));
  }
  return text;
}

std::vector<std::string> names_of(const Json& tools) {
  std::vector<std::string> names;
  if (!tools.is_array()) return names;
  for (const Json& tool : tools) {
    const Json::json_pointer name("/function/name");
    if (tool.is_object() && tool.contains(name) && tool.at(name).is_string())
      names.push_back(tool.at(name).get<std::string>());
  }
  return names;
}

}  // namespace

bool is_tool_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') ||
           std::string_view("_-./:").find(c) != std::string_view::npos;
  });
}

ToolCallParser::ToolCallParser(const CallTags& tags, Json tools)
    : tags_(tags), tools_(std::move(tools)) {}

void ToolCallParser::add(std::string_view text, bool last, Parts& parts) {
  held_ += text;
  while (advance(last, parts)) {
  }
  if (last) finish(parts);
}

bool ToolCallParser::advance(bool last, Parts& parts) {
  switch (state_) {
    case State::content:
      return find_call(last, parts);
    case State::begin:
      return begin_call(last);
    case State::name:
      return read_name(last, parts);
    case State::object:
      return read_object(parts);
    case State::list:
      return read_list(parts);
    case State::arguments:
      return read_arguments(parts);
    case State::tags:
      return read_tag(last, parts);
    case State::whole:
      return read_whole(last, parts);
    case State::end:
      return read_end(last);
  }
  return false;
}

bool ToolCallParser::go(State next) {
  state_ = next;
  return true;
}

// What is consumed before a call has a name becomes content if none comes.
void ToolCallParser::consume(size_t bytes) {
  if (!named_) raw_.append(held_, 0, bytes);
  held_.erase(0, bytes);
}

void ToolCallParser::begin_candidate(size_t bytes) {
  named_ = listed_ = false;
  raw_.clear();
  consume(bytes);
}

void ToolCallParser::note_name() {
  named_ = begun_ = called_ = true;
  space_.clear();
}

void ToolCallParser::skip_space() {
  consume(std::min(held_.find_first_not_of(kSpace), held_.size()));
}

bool ToolCallParser::find_call(bool last, Parts& parts) {
  const size_t space = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (tags_.bare && (!begun_ || called_)) {
    // Llama separates calls by semicolons.
    const size_t first =
        called_ ? std::min(held_.find_first_not_of(" \t\r\n;"), held_.size()) : space;
    if (first == held_.size() && !last) return false;
    if (first < held_.size() && held_[first] == '{') {
      begin_candidate(first);
      object_ = JsonCall(names_of(tools_));
      return go(State::object);
    }
  }
  size_t at = held_.size(), keep = 0;
  std::string_view found;
  auto look_for = [&](std::string_view tag) {
    const size_t begin = tag.empty() ? held_.npos : held_.find(tag);
    if (begin < at) at = begin, found = tag;
    keep = std::max(keep, beginning(held_, tag));
  };
  look_for(tags_.open);
  look_for(tags_.before);
  look_for(tags_.behind);
  if (found.empty()) at = held_.size() - (last ? 0 : keep);
  give_content(std::string_view(held_).substr(0, at), parts);
  held_.erase(0, at);
  if (found.empty()) return false;
  begin_candidate(found.size());
  return found == tags_.open ? go(State::begin) : true;
}

bool ToolCallParser::begin_call(bool last) {
  skip_space();
  if (held_.empty()) return false;
  name_.clear();
  given_ = 0;
  searched_ = 0;
  json_ = {};
  if (tags_.notation != CallTags::Notation::any) return go(State::whole);
  if (held_[0] == '[') {
    listed_ = true;
    consume(1);
    return go(State::list);
  }
  if (held_[0] == '{') {
    object_ = JsonCall(tags_.bare ? names_of(tools_) : std::vector<std::string>());
    return go(State::object);
  }
  if (!last && may_become(held_, kFunction)) return false;
  return go(State::name);
}

bool ToolCallParser::read_name(bool last, Parts& parts) {
  if (held_.starts_with(kFunction)) {
    const size_t end = held_.find('>');
    if (end == held_.npos) return last || held_.size() > kLongestName ? give_up(parts) : false;
    const std::string name(
        trim(std::string_view(held_).substr(kFunction.size(), end - kFunction.size())));
    consume(end + 1);
    return take_name(name, kParameter, parts);
  }
  size_t at = held_.size();
  std::string_view found;
  auto look_for = [&](std::string_view end) {
    const size_t begin = end.empty() ? held_.npos : held_.find(end);
    if (begin < at) at = begin, found = end;
  };
  for (std::string_view end : kNameEnds) look_for(end);
  look_for(tags_.close);
  if (found.empty()) return last || held_.size() > kLongestName ? give_up(parts) : false;
  const std::string text = held_.substr(0, at);
  // An object, or a key between tags, is read by the next state.
  consume(at + (found == "{" || found == kKey || found == tags_.close ? 0 : found.size()));
  if (found == kDeepSeekSeparator && trim(text) == "function") return true;
  return take_name(text, found, parts);
}

bool ToolCallParser::take_name(std::string_view text, std::string_view end, Parts& parts) {
  if (name_.empty()) {
    name_ = plain_name(text);
    const std::vector<std::string> known = names_of(tools_);
    const bool alone = end == tags_.close && std::ranges::find(known, name_) == known.end();
    if (!is_tool_name(name_) || alone) return give_up(parts);
    note_name();
    give(parts, PartKind::call, name_);
  }
  if (end == kCallId) return true;  // the id ends where the arguments begin
  if (end == kKey || end == kParameter) return go(State::tags);
  return go(State::arguments);
}

bool ToolCallParser::read_object(Parts& parts) {
  for (size_t i = 0; i < held_.size(); ++i) {
    Parts given;
    const JsonCall::State state = object_.take(held_[i], given);
    if (!given.empty() && given.front().kind == PartKind::call) note_name();
    for (const AnswerPart& part : given) give(parts, part.kind, part.text);
    if (state == JsonCall::State::more) continue;
    consume(i + 1);
    if (state == JsonCall::State::broken && !named_) return give_up(parts);
    return go(listed_ ? State::list : State::end);
  }
  consume(held_.size());
  return false;
}

// Between the objects of a list.
bool ToolCallParser::read_list(Parts& parts) {
  consume(std::min(held_.find_first_not_of(" \t\r\n,"), held_.size()));
  if (held_.empty()) return false;
  if (held_[0] == '{') {
    object_ = JsonCall();
    return go(State::object);
  }
  if (held_[0] != ']' && !named_) return give_up(parts);
  if (held_[0] == ']') consume(1);
  listed_ = false;
  return go(State::end);
}

bool ToolCallParser::read_arguments(Parts& parts) {
  if (json_.text().empty()) {
    skip_space();
    if (held_.empty()) return false;
    if (held_[0] != '{') {
      give(parts, PartKind::arguments, "{}");
      return go(State::end);
    }
  }
  size_t taken = 0;
  while (taken < held_.size() && !json_.done()) json_.take(held_[taken++]);
  give(parts, PartKind::arguments, std::string_view(held_).substr(0, taken));
  held_.erase(0, taken);
  return json_.done() ? go(State::end) : false;
}

bool ToolCallParser::read_tag(bool last, Parts& parts) {
  skip_space();
  const bool parameter = held_.starts_with(kParameter);
  if (parameter || held_.starts_with(kKey)) {
    const std::string_view end_tag = parameter ? kParameterEnd : kValueEnd;
    const size_t end = held_.find(end_tag, searched_);
    if (end == held_.npos) {
      searched_ = held_.size() - std::min(held_.size(), end_tag.size() - 1);
      return false;
    }
    const std::string_view text = std::string_view(held_).substr(0, end);
    const size_t key = parameter ? kParameter.size() : kKey.size();
    const std::string_view middle = parameter ? ">" : kKeyEnd;
    const size_t key_end = std::min(text.find(middle, key), text.size());
    std::string_view value = text.substr(std::min(key_end + middle.size(), text.size()));
    if (!parameter) {
      value = trim(value);
      if (value.starts_with(kValue)) value.remove_prefix(kValue.size());
    }
    give_argument(trim(text.substr(key, key_end - key)), value, parts);
    consume(end + end_tag.size());
    searched_ = 0;
    return true;
  }
  for (std::string_view tag : {kParameter, kKey, kFunctionEnd})
    if (!last && may_become(held_, tag)) return false;
  if (held_.starts_with(kFunctionEnd)) consume(kFunctionEnd.size());
  give(parts, PartKind::arguments, given_ == 0 ? "{}" : "}");
  return go(State::end);
}

// Calls that are read when they have ended. A cut answer has those that are complete, or none.
bool ToolCallParser::read_whole(bool last, Parts& parts) {
  const size_t end = held_.find(tags_.close, searched_);
  if (end == held_.npos && !last) {
    searched_ = held_.size() - std::min(held_.size(), tags_.close.size() - 1);
    return false;
  }
  const WrittenCalls calls = written_calls(std::string_view(held_).substr(0, end));
  if (!calls) return give_up(parts);
  note_name();
  for (const WrittenCall& call : *calls) {
    name_ = call.name;
    given_ = 0;
    give(parts, PartKind::call, name_);
    for (const auto& [key, value, kind] : call.arguments) {
      if (kind == WrittenCall::Argument::Kind::by_schema)
        give_argument(key, value, parts);
      else
        give_json(key, kind == WrittenCall::Argument::Kind::json ? value : show(value), parts);
    }
    give(parts, PartKind::arguments, given_ == 0 ? "{}" : "}");
  }
  consume(std::min(end, held_.size()));
  return go(State::end);
}

WrittenCalls ToolCallParser::written_calls(std::string_view text) const {
  WrittenCalls calls;
  switch (tags_.notation) {
    case CallTags::Notation::any:
      break;
    case CallTags::Notation::python:
      calls = read_python_calls(text);
      break;
    case CallTags::Notation::keyed:
      calls = read_keyed_calls(text);
      break;
    case CallTags::Notation::named_objects:
      calls = read_named_objects(text);
      break;
    case CallTags::Notation::invokes:
      calls = read_invokes(text, tags_.prefix);
      break;
  }
  const bool named = calls && std::ranges::all_of(*calls, is_tool_name, &WrittenCall::name);
  return named ? calls : std::nullopt;
}

bool ToolCallParser::read_end(bool last) {
  consume(std::min(held_.find_first_not_of(" \t\r\n`"), held_.size()));
  if (held_.empty() && !last) return false;  // space that is still to come belongs to nothing too
  if (tags_.several && held_.starts_with('{')) {
    object_ = JsonCall();
    return go(State::object);
  }
  if (held_.starts_with(tags_.close)) {
    consume(tags_.close.size());
  } else if (may_become(held_, tags_.close)) {
    if (!last) return false;
    consume(held_.size());  // of a cut answer
  }
  return go(State::content);
}

bool ToolCallParser::give_up(Parts& parts) {
  give_content(std::exchange(raw_, {}), parts);
  return go(State::content);
}

void ToolCallParser::finish(Parts& parts) {
  if (state_ == State::tags) give(parts, PartKind::arguments, given_ == 0 ? "{}" : "}");
  if (state_ != State::content && !named_) {
    consume(held_.size());
    give_up(parts);
  }
  if (!called_) give(parts, PartKind::content, space_);
  held_.clear();
}

void ToolCallParser::give_content(std::string_view text, Parts& parts) {
  std::string all = std::exchange(space_, {}) + std::string(text);
  if (called_) all.erase(0, std::min(all.find_first_not_of(kSpace), all.size()));
  const size_t end = all.find_last_not_of(kSpace) + 1;
  space_ = all.substr(end);
  if (end == 0) return;
  begun_ = true;
  called_ = false;
  give(parts, PartKind::content, std::string_view(all).substr(0, end));
}

void ToolCallParser::give_argument(std::string_view key, std::string_view value, Parts& parts) {
  // A line break on either side belongs to the tags.
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  const std::string_view bare = trim(value);
  if (is_string(key)) return give_json(key, show(value), parts);
  // Some templates write values of Python.
  give_json(key, read_python_value(bare).value_or(show(value)), parts);
}

void ToolCallParser::give_json(std::string_view key, std::string_view json, Parts& parts) {
  give(parts, PartKind::arguments,
       (given_++ == 0 ? "{" : ", ") + show(key) + ": " + std::string(json));
}

bool ToolCallParser::is_string(std::string_view key) const {
  if (!tools_.is_array()) return true;
  for (const Json& tool : tools_) {
    const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
    if (!function.is_object() || function.value("name", Json()) != name_) continue;
    const Json::json_pointer schema =
        Json::json_pointer("/parameters/properties") / std::string(key);
    return !function.contains(schema) || is_plain_string(function.at(schema));
  }
  return true;
}

}  // namespace sluice
