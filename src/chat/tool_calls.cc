#include "src/chat/tool_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/strings.h"
#include "src/chat/literals.h"
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
constexpr std::string_view kCallId = "[CALL_ID]", kDeepSeekSeparator = "<｜tool▁sep｜>",
                           kKimiArguments = "<|tool_call_argument_begin|>";
// The ends of a name that no tag is around.
constexpr std::array<std::string_view, 6> kNameEnds{"[ARGS]",       kCallId, kDeepSeekSeparator,
                                                    kKimiArguments, kKey,    "{"};

// Returns whether `text` may become `tag` when more comes.
bool may_become(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
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

// Returns a text of Gemma's notation with its own quotation marks in place of `mark`.
std::string with_marks(std::string_view text, std::string_view mark) {
  std::string marked(text);
  if (mark.empty()) return marked;
  for (size_t at = 0; (at = marked.find(mark, at)) != marked.npos; at += kKeyedMark.size())
    marked.replace(at, mark.size(), kKeyedMark);
  return marked;
}

// Returns true if an object that has begun may become a call of one of these tools.
bool may_be_call(std::string_view text, const std::vector<std::string>& known) {
  TextReader in(text);
  const auto string = [&]() -> std::optional<std::string_view> {
    const char quote = in.take_char();
    return in.take_before({&quote, 1});
  };
  in.take("{");
  in.skip_space();
  if (in.ended()) return true;
  if (in.next() != '"' && in.next() != '\'') return false;
  const std::optional<std::string_view> key = string();
  if (!key) return true;
  if (*key != "name" && *key != "tool_name") return begins_json_call(*key);
  if (!in.take_behind_space(":")) return in.ended();
  in.skip_space();
  const std::optional<std::string_view> name = string();
  return !name || std::ranges::find(known, *name) != known.end();
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
    : tags_(tags), tools_(std::move(tools)), known_(names_of(tools_)) {}

void ToolCallParser::add(std::string_view text, bool last, Parts& parts, bool cut) {
  held_ += text;
  last_ = last;
  cut_ = last && cut;
  while (advance(parts)) {
  }
  if (last && !called_) give(parts, PartKind::content, std::exchange(space_, {}));
}

void ToolCallParser::restart(std::string_view behind) {
  CallTags tags = tags_;
  if (tags.behind.empty()) tags.behind = behind;
  *this = ToolCallParser(tags, std::move(tools_));
}

bool ToolCallParser::advance(Parts& parts) {
  switch (state_) {
    case State::content:
      return find_call(parts);
    case State::begin:
      return begin_call(parts);
    case State::name:
      return read_name(parts);
    case State::object:
      return read_object(parts);
    case State::list:
      return read_list(parts);
    case State::arguments:
      return read_arguments(parts);
    case State::tags:
      return read_tag(parts);
    case State::whole:
      return read_whole(parts);
    case State::end:
      return read_end(parts);
    case State::no_call:
      return skip_no_call(parts);
  }
  return false;
}

bool ToolCallParser::go(State next) {
  state_ = next;
  return true;
}

void ToolCallParser::skip_space() {
  at_ = std::min(held_.find_first_not_of(kSpace, at_), held_.size());
}

bool ToolCallParser::is_known(std::string_view name) const {
  return std::ranges::find(known_, name) != known_.end();
}

// Returns true if a tag is here, before which a call must have ended.
bool ToolCallParser::ends_here() const {
  for (std::string_view tag : {tags_.close, tags_.open, tags_.behind})
    if (!tag.empty() && rest().starts_with(tag)) return true;
  return false;
}

bool ToolCallParser::may_end_here() const {
  if (last_) return false;
  for (std::string_view tag : {tags_.close, tags_.open, tags_.behind})
    if (may_become(rest(), tag)) return true;
  return false;
}

bool ToolCallParser::find_call(Parts& parts) {
  at_ = tag_ = 0;
  lone_ = listed_ = odd_ = excess_ = false;
  if (tags_.bare && (!begun_ || called_)) {
    // Llama separates calls by semicolons.
    const std::string_view between = called_ ? " \t\r\n;" : kSpace;
    const size_t first = std::min(held_.find_first_not_of(between), held_.size());
    if (first == held_.size() && !last_) return false;
    if (first < held_.size() && held_[first] == '{') {
      held_.erase(0, first);
      return begin_object();
    }
  }
  size_t at = held_.size(), keep = 0;
  std::string_view found;
  auto look_for = [&](std::string_view tag) {
    const size_t begin = tag.empty() ? held_.npos : held_.find(tag);
    if (begin < at) at = begin, found = tag;
    keep = std::max(keep, beginning(held_, tag));
  };
  for (std::string_view tag : {tags_.open, tags_.before, tags_.behind, tags_.lone}) look_for(tag);
  if (found.empty()) at = held_.size() - (last_ ? 0 : keep);
  give_content(std::string_view(held_).substr(0, at), parts);
  held_.erase(0, at);
  if (found.empty()) return false;
  lone_ = found == tags_.lone;
  if (found != tags_.open && !lone_) {
    held_.erase(0, found.size());
    return true;
  }
  tag_ = found.size();
  at_ = lone_ ? 0 : tag_;
  return go(State::begin);
}

bool ToolCallParser::begin_call(Parts& parts) {
  skip_space();
  if (rest().empty()) return last_ ? give_up(parts) : false;
  name_.clear();
  id_.clear();
  arguments_.clear();
  searched_ = at_;
  if (tags_.notation != CallTags::Notation::any) return go(State::whole);
  if (rest()[0] == '{') return begin_object();
  if (rest()[0] == '[') {
    listed_ = true;
    ++at_;
    return go(State::list);
  }
  if (!last_ && may_become(rest(), kFunction)) return false;
  return go(State::name);
}

bool ToolCallParser::begin_object() {
  constexpr size_t kOuter = 2;  // the call and its arguments
  extent_ = JsonExtent(kOuter);
  value_ = at_;
  return go(State::object);
}

bool ToolCallParser::read_name(Parts& parts) {
  const std::string_view text = rest().substr(0, kLongestName);
  const auto wait = [&] { return last_ || text.size() == kLongestName ? give_up(parts) : false; };
  if (text.starts_with(kFunction)) {
    const size_t end = text.find('>');
    if (end == text.npos) return wait();
    const std::string name(trim(text.substr(kFunction.size(), end - kFunction.size())));
    if (lone_ && !is_known(name)) return give_up(parts);
    at_ += end + 1;
    return take_name(name, kParameter, parts);
  }
  size_t at = text.size();
  std::string_view found;
  auto look_for = [&](std::string_view end) {
    const size_t begin = end.empty() ? text.npos : text.find(end);
    if (begin < at) at = begin, found = end;
  };
  for (std::string_view end : kNameEnds) look_for(end);
  for (std::string_view end : {tags_.close, tags_.open, tags_.behind}) look_for(end);
  if (found.empty()) return wait();
  const std::string name(text.substr(0, at));
  const bool ends = found == tags_.close || found == tags_.open || found == tags_.behind;
  // An object, or a key between tags, is read by the next state.
  at_ += at + (ends || found == "{" || found == kKey ? 0 : found.size());
  if (found == kDeepSeekSeparator && trim(name) == "function") return true;
  return take_name(name, ends ? tags_.close : found, parts);
}

bool ToolCallParser::take_name(std::string_view text, std::string_view end, Parts& parts) {
  if (name_.empty()) {
    name_ = plain_name(text);
    if (end == kKimiArguments && !is_known(name_)) name_ = name_.substr(0, name_.rfind(':'));
    if (end == kKimiArguments && is_call_id(trim(text))) id_ = trim(text);
    const bool alone = end == tags_.close;
    if (!is_tool_name(name_) || (alone && !is_known(name_))) return give_up(parts);
    // Between a name and its arguments there may be a line of Markdown.
    const std::string_view all = trim(text);
    const std::string_view line = trim(all.substr(std::min(all.find('\n'), all.size())));
    if (!line.empty() && (alone || (line != "```json" && line != "```"))) return give_up(parts);
  } else if (is_call_id(trim(text))) {
    id_ = trim(text);
  }
  if (end == kCallId) return true;  // the id ends where the arguments begin
  if (end == kKey || end == kParameter) return go(State::tags);
  extent_ = JsonExtent();
  return go(State::arguments);
}

// Returns what has been read of the object, or of the arguments. The text behind a missing brace
// may belong to a line of Markdown, or be a comma.
std::string ToolCallParser::extent_text(const std::string& missing) const {
  std::string text = held_.substr(value_, at_ - value_);
  if (!missing.empty()) text.resize(text.find_last_not_of(" \t\r\n`,") + 1);
  return text + missing;
}

bool ToolCallParser::read_object(Parts& parts) {
  constexpr size_t kFirst = 8;  // characters
  const bool among = listed_ || tags_.several;
  while (at_ < held_.size()) {
    if (!extent_.quoted() && extent_.begun()) {
      if (ends_here() || (among && extent_.ended_before(held_[at_])))
        return take_object(extent_.missing(), parts);
      if (may_end_here()) return false;
    }
    const int strings = extent_.strings();
    extent_.take(held_[at_++]);
    if (extent_.done()) return take_object("", parts);
    const bool early = at_ - value_ <= kFirst || (extent_.strings() != strings && strings < 2);
    const std::string_view begun = std::string_view(held_).substr(value_, at_ - value_);
    if (tags_.bare && early && !may_be_call(begun, known_)) return give_up(parts);
  }
  if (!last_) return false;
  return take_object(cut_ ? std::nullopt : extent_.missing(), parts);
}

bool ToolCallParser::take_object(const std::optional<std::string>& missing, Parts& parts) {
  const std::string text = extent_text(missing.value_or(""));
  const std::optional<JsonCall> call = missing ? read_json_call(text) : std::nullopt;
  const bool valid = call && is_tool_name(call->name) && (!tags_.bare || is_known(call->name));
  if (valid) {
    add_call(call->name, call->arguments, call->id);
    odd_ = odd_ || !call->plain;
  } else if (!listed_ || text.find("\"name\"") != text.rfind("\"name\"")) {
    return give_up(parts);
  } else {
    unread_ += text;
  }
  return go(listed_ ? State::list : State::end);
}

// Between the objects of a list.
bool ToolCallParser::read_list(Parts& parts) {
  at_ = std::min(held_.find_first_not_of(" \t\r\n,", at_), held_.size());
  if (rest().empty()) {
    if (!last_) return false;
    return pending_.empty() ? give_up(parts) : go(State::end);
  }
  if (rest()[0] == '{') return begin_object();
  if (rest()[0] == '}' && !odd_) {
    ++at_;
    return true;
  }
  if (rest()[0] == ']') {
    ++at_;
  } else if (may_end_here()) {
    return false;
  } else if (!ends_here()) {
    return give_up(parts);
  }
  if (pending_.empty()) return give_up(parts);
  listed_ = false;
  return go(State::end);
}

bool ToolCallParser::read_arguments(Parts& parts) {
  if (!extent_.begun()) {
    skip_space();
    if (rest().empty() && !last_) return false;
    if (rest().empty() || rest()[0] != '{') {
      if (may_end_here()) return false;
      if (cut_ || (!rest().empty() && !ends_here())) return give_up(parts);
      add_call(name_, "{}", id_);
      return go(State::end);
    }
    value_ = at_;
  }
  while (at_ < held_.size()) {
    if (!extent_.quoted() && extent_.begun()) {
      if (ends_here()) return take_arguments(extent_.missing(), parts);
      if (may_end_here()) return false;
    }
    extent_.take(held_[at_++]);
    if (extent_.done()) return take_arguments("", parts);
  }
  if (!last_) return false;
  return take_arguments(cut_ ? std::nullopt : extent_.missing(), parts);
}

bool ToolCallParser::take_arguments(const std::optional<std::string>& missing, Parts& parts) {
  if (!missing) return give_up(parts);
  const std::optional<std::string> json = read_object_text(extent_text(*missing));
  if (!json) return give_up(parts);
  add_call(name_, *json, id_);
  return go(State::end);
}

bool ToolCallParser::read_tag(Parts& parts) {
  skip_space();
  if (rest().starts_with(kParameter)) return read_parameter(parts);
  if (rest().starts_with(kKey)) return read_key(parts);
  if (!last_) {
    for (std::string_view tag : {kParameter, kKey, kFunctionEnd})
      if (may_become(rest(), tag)) return false;
  }
  const bool partial = last_ && rest().starts_with("</") &&
                       (may_become(rest(), kFunctionEnd) || may_become(rest(), tags_.close));
  if (rest().starts_with(kFunctionEnd)) {
    at_ += kFunctionEnd.size();
  } else if (may_end_here()) {
    return false;
  } else if (partial) {
    at_ = held_.size();  // of a cut answer
  } else if (rest().empty() ? cut_ : !ends_here()) {
    return give_up(parts);
  }
  add_call(name_, arguments_.empty() ? "{}" : arguments_ + "}", id_);
  return go(State::end);
}

// Values end at their tag, or where it was left out: at the next one's, or at the call's end.
bool ToolCallParser::read_parameter(Parts& parts) {
  const size_t from = std::max(searched_, at_), end = held_.find(kParameterEnd, from);
  size_t stop = end, behind = kParameterEnd.size();
  for (size_t at = held_.find(kFunctionEnd, from); at < stop;
       at = held_.find(kFunctionEnd, at + 1)) {
    // Behind it the call has to end.
    const size_t next =
        std::min(held_.find_first_not_of(kSpace, at + kFunctionEnd.size()), held_.size());
    const std::string_view close = std::string_view(held_).substr(next);
    if (!last_ && may_become(close, tags_.close)) return false;
    if (close.starts_with(tags_.close)) stop = at, behind = 0;
  }
  if (stop == held_.npos) {
    searched_ = std::max(at_, held_.size() - std::min(held_.size(), kParameterEnd.size() - 1));
    return last_ ? give_up(parts) : false;
  }
  const std::string_view text = rest().substr(0, stop - at_);
  const size_t key_end = text.find('>');
  if (key_end == text.npos || text.substr(0, key_end).find('\n') != text.npos)
    return give_up(parts);
  std::string_view value = text.substr(key_end + 1);
  // The next one's tag, of a name that the tool has.
  for (size_t at = value.find(kParameter); at != value.npos; at = value.find(kParameter, at + 1)) {
    const std::string_view next = value.substr(at + kParameter.size());
    const std::string key(trim(next.substr(0, next.find('>'))));
    if (property(name_, key) == nullptr) continue;
    stop = static_cast<size_t>(value.data() - held_.data()) + at;
    value = value.substr(0, at);
    behind = 0;
    break;
  }
  return take_value(trim(text.substr(kParameter.size(), key_end - kParameter.size())), value,
                    stop + behind);
}

bool ToolCallParser::read_key(Parts& parts) {
  const size_t end = held_.find(kValueEnd, std::max(searched_, at_));
  if (end == held_.npos) {
    searched_ = std::max(at_, held_.size() - std::min(held_.size(), kValueEnd.size() - 1));
    return last_ ? give_up(parts) : false;
  }
  const std::string_view text = rest().substr(0, end - at_);
  const size_t key_end = text.find(kKeyEnd);
  if (key_end == text.npos) return give_up(parts);
  std::string_view value = text.substr(key_end + kKeyEnd.size());
  const size_t begin = std::min(value.find_first_not_of(kSpace), value.size());
  // If the value's own tag was left out, the space beside it belongs to nothing.
  if (value.substr(begin).starts_with(kValue))
    value.remove_prefix(begin + kValue.size());
  else
    value = trim(value);
  if (value.find(kKey) != value.npos) return give_up(parts);
  return take_value(trim(text.substr(kKey.size(), key_end - kKey.size())), value,
                    end + kValueEnd.size());
}

bool ToolCallParser::take_value(std::string_view key, std::string_view value, size_t end) {
  if (tags_.lines) {
    // A line break on either side belongs to the tags.
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
  }
  add_argument(key, value);
  at_ = searched_ = end;
  return true;
}

// Calls that are read when they have ended. A cut answer has those that are complete, or none.
bool ToolCallParser::read_whole(Parts& parts) {
  const size_t end = held_.find(tags_.close, std::max(searched_, at_));
  const bool closed = end != held_.npos;
  if (!closed && !last_) {
    searched_ = std::max(at_, held_.size() - std::min(held_.size(), tags_.close.size() - 1));
    return false;
  }
  const std::string text(rest().substr(0, closed ? end - at_ : std::string::npos));
  at_ = std::min(end, held_.size());
  const WrittenCalls calls = written_calls(text, closed);
  if (!calls) return give_up(parts);
  for (const WrittenCall& call : *calls) {
    unread_ += call.unread;
    if (!call.unread.empty()) continue;
    name_ = call.name;
    arguments_.clear();
    for (const auto& [key, value, kind] : call.arguments) {
      if (kind == WrittenCall::Argument::Kind::by_schema)
        add_argument(key, value);
      else
        add_json(key, kind == WrittenCall::Argument::Kind::json ? value : json_string(value));
    }
    add_call(name_, arguments_.empty() ? "{}" : arguments_ + "}");
  }
  return go(State::end);
}

WrittenCalls ToolCallParser::written_calls(std::string_view text, bool closed) const {
  WrittenCalls calls;
  switch (tags_.notation) {
    case CallTags::Notation::any:
      break;
    case CallTags::Notation::python:
      calls = read_python_calls(text, closed);
      break;
    case CallTags::Notation::keyed:
      calls = read_keyed_calls(with_marks(text, tags_.quote), closed);
      break;
    case CallTags::Notation::named_objects:
      calls = read_named_objects(text);
      break;
    case CallTags::Notation::invokes:
      calls = read_invokes(text, tags_.prefix, [&](std::string_view tool, std::string_view key) {
        return property(tool, key) != nullptr;
      });
      break;
  }
  if (!calls) return calls;
  bool any = false;
  for (const WrittenCall& call : *calls) {
    if (!call.unread.empty()) continue;
    if (!is_tool_name(call.name) || (lone_ && !is_known(call.name))) return std::nullopt;
    any = true;
  }
  return any ? calls : std::nullopt;
}

bool ToolCallParser::read_end(Parts& parts) {
  for (; at_ < held_.size(); ++at_) {
    const char c = held_[at_];
    if (c == '}' || c == ']') excess_ = true;
    if (std::string_view(" \t\r\n`}]").find(c) == std::string_view::npos) break;
  }
  if ((rest().empty() && !last_) || may_end_here()) return false;
  // A bracket that closes too much may have ended the arguments too early.
  if (excess_ && odd_) return give_up(parts);
  if (rest().empty()) return commit(parts);
  if (!tags_.close.empty() && rest().starts_with(tags_.close)) {
    at_ += tags_.close.size();
    return commit(parts);
  }
  if (ends_here()) return commit(parts);
  if (last_ && may_become(rest(), tags_.close)) {
    at_ = held_.size();  // of a cut answer
    return commit(parts);
  }
  return read_behind(parts);
}

// Reads the text behind a call that is not a tag.
bool ToolCallParser::read_behind(Parts& parts) {
  const char c = rest()[0];
  const bool object = tags_.notation == CallTags::Notation::any && !tags_.bare;
  if (c == '{' && object) return begin_object();
  if (c == ',' && object && !tags_.close.empty()) {
    const size_t next = held_.find_first_not_of(" \t\r\n,", at_);
    if (next == held_.npos && !last_) return false;
    if (next != held_.npos && held_[next] == '{') {
      at_ = next;
      return begin_object();
    }
  }
  if (tags_.bare && c == ';') return commit(parts);
  if (!last_ && may_become(rest(), tags_.lone)) return false;
  if (!tags_.lone.empty() && rest().starts_with(tags_.lone)) return commit(parts);
  // Text within the tags is of the call. Behind calls that have no end, only text without quotes
  // and brackets is none of theirs.
  const size_t from = std::max(searched_, at_);
  const size_t open = tags_.open.empty() ? held_.npos : held_.find(tags_.open, from);
  const size_t close = tags_.close.empty() ? held_.npos : held_.find(tags_.close, from);
  if (close < open) return give_up(parts);
  if (open == held_.npos && !last_) {
    const size_t longest = std::max(tags_.open.size(), tags_.close.size());
    searched_ = std::max(at_, held_.size() - std::min(held_.size(), longest));
    return false;
  }
  const std::string_view text = rest().substr(0, open == held_.npos ? open : open - at_);
  if (tags_.close.empty() && text.find_first_of("\"{}[]") != text.npos) return give_up(parts);
  return commit(parts);
}

// Behind what was no call, up to its end, unless another call begins there.
bool ToolCallParser::skip_no_call(Parts& parts) {
  if (fresh_) {
    const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view next = std::string_view(held_).substr(first);
    if (!last_ && may_become(next, tags_.open)) return false;
    fresh_ = false;
    if (next.starts_with(tags_.open)) return go(State::content);
  }
  const size_t close = held_.find(tags_.close);
  const bool found = close != held_.npos;
  const size_t bytes = found   ? close + tags_.close.size()
                       : last_ ? held_.size()
                               : held_.size() - beginning(held_, tags_.close);
  give_content(std::string_view(held_).substr(0, bytes), parts);
  held_.erase(0, bytes);
  return found && go(State::content);
}

// Makes content of what was taken for a call: only of its tag, where it was not much like one, or
// of all up to its end.
bool ToolCallParser::give_up(Parts& parts) {
  pending_.clear();
  unread_.clear();
  size_t bytes = std::max<size_t>(tag_, 1);
  State next = State::content;
  if (state_ != State::begin && state_ != State::name) {
    const size_t close = tags_.close.empty() ? held_.npos : held_.find(tags_.close, tag_);
    bytes = std::max(bytes, at_);
    if (close != held_.npos && close + tags_.close.size() <= at_) {
      bytes = close + tags_.close.size();
    } else if (!tags_.close.empty()) {
      next = State::no_call;
      fresh_ = true;
    }
  }
  give_content(std::string_view(held_).substr(0, bytes), parts);
  held_.erase(0, bytes);
  return go(next);
}

// Gives the calls that have been read.
bool ToolCallParser::commit(Parts& parts) {
  for (AnswerPart& part : pending_) parts.push_back(std::move(part));
  pending_.clear();
  space_.clear();
  begun_ = called_ = true;
  give_content(trim(std::exchange(unread_, {})), parts);
  held_.erase(0, at_);
  return go(State::content);
}

void ToolCallParser::add_call(std::string_view name, std::string_view arguments,
                              std::string_view id) {
  pending_.push_back({PartKind::call, std::string(name), std::string(id)});
  pending_.push_back({PartKind::arguments, std::string(arguments)});
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

// A value between tags: a string as it stands, or JSON, by its schema.
void ToolCallParser::add_argument(std::string_view key, std::string_view value) {
  const SchemaTypes types = types_of(key);
  const std::string_view bare = trim(value);
  if (types.is_text()) {
    const bool none = types.may_be_null() && (bare == "null" || bare == "None");
    return add_json(key, none ? "null" : json_string(value));
  }
  // Some templates write values of Python.
  const std::optional<std::string> json = read_literal(bare, Literals::Notation::python);
  const bool fits = json && (!types.has(SchemaTypes::kString) ||
                             types.has(SchemaTypes::type_of(Json::parse(*json, nullptr, false))));
  add_json(key, fits ? *json : json_string(value));
}

void ToolCallParser::add_json(std::string_view key, std::string_view json) {
  arguments_ += (arguments_.empty() ? "{" : ", ") + json_string(key) + ": ";
  arguments_ += json;
}

// The schema of a tool's arguments; null: there is none.
const Json* ToolCallParser::parameters(std::string_view tool_name) const {
  if (!tools_.is_array()) return nullptr;
  const Json::json_pointer name("/function/name"), parameters("/function/parameters");
  for (const Json& tool : tools_) {
    if (!tool.is_object() || !tool.contains(name) || tool.at(name) != tool_name) continue;
    return tool.contains(parameters) ? &tool.at(parameters) : nullptr;
  }
  return nullptr;
}

// The schema of an argument; null: there is none.
const Json* ToolCallParser::property(std::string_view tool_name, std::string_view key) const {
  const Json* schema = parameters(tool_name);
  if (schema == nullptr) return nullptr;
  const auto properties = schema->find("properties");
  if (properties == schema->end()) return nullptr;
  const auto found = properties->find(std::string(key));
  return found == properties->end() ? nullptr : &*found;
}

SchemaTypes ToolCallParser::types_of(std::string_view key) const {
  const Json* schema = property(name_, key);
  return schema == nullptr ? SchemaTypes() : SchemaTypes::of(*schema, *parameters(name_));
}

}  // namespace sluice
