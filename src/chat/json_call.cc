#include "src/chat/json_call.h"

#include <algorithm>
#include <array>

#include "src/base/json.h"
#include "src/chat/literals.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 8> kCallKeys{
    "name", "tool_name", "arguments", "parameters", "id", "tool_call_id", "type", "function"};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The text of a JSON string; empty for everything else.
std::string string_of(const std::string& json) {
  const Json value = Json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Some models write the object as a string, or null for none.
std::optional<std::string> arguments_of(const std::string& json) {
  if (json == "null" || json == "\"\"") return "{}";
  if (json.starts_with('"')) return read_object_text(string_of(json));
  if (json.starts_with('{')) return json;
  return std::nullopt;
}

// Values that are JSON are given as they are.
bool read_members(TextReader& in, std::vector<Literals::Member>& members) {
  Literals literals(in, Literals::Notation::json);
  if (!in.take_behind_space("{")) return false;
  while (!in.take_behind_space("}")) {
    if (!members.empty() && !in.take(",")) return false;
    if (in.take_behind_space("}")) break;
    Literals::Member& member = members.emplace_back();
    if (!literals.key(":", member.key)) return false;
    in.skip_space();
    const size_t begin = in.at();
    if (!literals.value(member.value)) return false;
    if (Json::accept(in.since(begin))) member.value = in.since(begin);
  }
  in.skip_space();
  return in.ended();
}

// The call within {"type": "function", "function": {...}}, as the APIs write it.
std::optional<std::string> inner_call(const std::vector<Literals::Member>& members) {
  std::optional<std::string> inner;
  for (const auto& [key, value] : members) {
    if (key == "function" && value.starts_with('{') && !inner)
      inner = value;
    else if (key != "type" && key != "id")
      return std::nullopt;
  }
  return inner;
}

}  // namespace

void JsonExtent::take(char c) {
  if (quoted()) {
    if (!escaped_ && c == quote_) {
      quote_ = '\0';
      if (levels_.size() == 1) ++strings_;
    }
    escaped_ = !escaped_ && c == '\\';
    return;
  }
  if (is_space(c)) return;
  const bool begins_value = std::string_view("{[,:").find(previous_) != std::string_view::npos;
  if (c == '"' || (c == '\'' && begins_value)) {
    quote_ = c;
  } else if (c == '{' || c == '[') {
    levels_.push_back({c == '{' ? '}' : ']'});
  } else if (c == ',' && !levels_.empty()) {
    levels_.back().comma = true;
  } else if ((c == '}' || c == ']') && !levels_.empty()) {
    broken_ = broken_ || levels_.back().close != c;
    splits_ = splits_ || splits(levels_.size() - 1);
    levels_.pop_back();
  }
  previous_ = c;
}

// The members of an object within an object might be the outer one's, if a brace is missing.
bool JsonExtent::splits(size_t level) const {
  return level >= outer_ && in_object(level) && in_object(level - 1) && levels_[level].comma;
}

bool JsonExtent::ended_before(char c) const {
  if (quoted() || levels_.size() != 1 || previous_ == '{') return false;
  return c == ']' || (c == '{' && previous_ != ':');
}

std::optional<std::string> JsonExtent::missing() const {
  if (quoted() || broken_ || splits_ || levels_.size() > outer_) return std::nullopt;
  std::string text;
  for (const Level& level : levels_) {
    if (level.close != '}') return std::nullopt;
    text += level.close;
  }
  return text;
}

std::optional<JsonCall> read_json_call(std::string_view text) {
  TextReader in(text);
  std::vector<Literals::Member> members;
  if (!read_members(in, members)) return std::nullopt;
  if (const std::optional<std::string> inner = inner_call(members)) {
    TextReader within(*inner);
    std::erase_if(members, [](const Literals::Member& member) { return member.key != "id"; });
    std::vector<Literals::Member> own;
    if (!read_members(within, own)) return std::nullopt;
    members.insert(members.begin(), own.begin(), own.end());
  }
  JsonCall call;
  bool argued = false;
  for (const auto& [key, value] : members) {
    if (key == "name" || key == "tool_name" || key == "function") {
      if (call.name.empty()) call.name = string_of(value);
    } else if (key == "arguments" || key == "parameters") {
      const std::optional<std::string> arguments = arguments_of(value);
      if (!arguments || argued) return std::nullopt;
      call.arguments = *arguments;
      argued = true;
    } else if (key == "id" && is_call_id(string_of(value))) {
      call.id = string_of(value);
    }
    call.plain = call.plain && begins_json_call(key);
  }
  // Other members without arguments may be meant as these.
  if (call.name.empty() || (!argued && !call.plain)) return std::nullopt;
  if (!argued) call.arguments = "{}";
  return call;
}

bool begins_json_call(std::string_view key) {
  return std::ranges::find(kCallKeys, key) != kCallKeys.end();
}

bool is_call_id(std::string_view text) {
  constexpr size_t kLongest = 64;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || text.size() > kLongest || std::ranges::all_of(text, is_digit)) return false;
  return std::ranges::all_of(text, [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || is_digit(c) || std::string_view("_-.:").find(c) != std::string_view::npos;
  });
}

}  // namespace sluice
