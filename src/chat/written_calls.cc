#include "src/chat/written_calls.h"

#include <algorithm>

#include "src/base/json.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

using ArgumentKind = WrittenCall::Argument::Kind;

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Goes through a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool ended() const { return at_ == text_.size(); }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take_behind_space(std::string_view text) {
    skip_space();
    return take(text);
  }
  std::string_view take_until(std::string_view ends) {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  // What is before `end`, which is taken too.
  std::optional<std::string_view> take_before(std::string_view end) {
    const size_t begin = at_, found = text_.find(end, at_);
    if (found == text_.npos) return std::nullopt;
    at_ = found + end.size();
    return text_.substr(begin, found - begin);
  }
  char take_char() { return ended() ? '\0' : text_[at_++]; }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// Values in the notation of Python, or of Gemma, as JSON. False: this is none.
class Values {
 public:
  enum class Notation : uint8_t { python, keyed };

  Values(Reader& in, Notation notation) : in_(in), keyed_(notation == Notation::keyed) {}

  bool value(std::string& json) {
    in_.skip_space();
    if (std::optional<bool> string = any_string(json)) return *string;
    if (in_.take("[")) return within([&] { return list("]", json); });
    if (!keyed_ && in_.take("(")) return within([&] { return list(")", json); });
    if (in_.take("{")) return within([&] { return object(json); });
    return word(json);
  }

  // Behind what opens it. KEY SEPARATOR VALUE, ... END
  bool arguments(std::string_view separator, std::string_view end,
                 std::vector<WrittenCall::Argument>& all) {
    while (!in_.take_behind_space(end)) {
      if (!all.empty() && !in_.take(",")) return false;
      if (in_.take_behind_space(end)) return true;
      WrittenCall::Argument& argument = all.emplace_back();
      if (!key(separator, argument.key) || !value(argument.value)) return false;
    }
    return true;
  }

 private:
  static constexpr std::string_view kQuote = "<|\"|>";
  static constexpr int kMostLevels = 100;

  template <class Content>
  bool within(Content content) {
    const bool valid = ++level_ <= kMostLevels && content();
    --level_;
    return valid;
  }

  // nullopt: no string begins here.
  std::optional<bool> any_string(std::string& json) {
    std::string text;
    if (keyed_) {
      if (!in_.take(kQuote)) return std::nullopt;
      const std::optional<std::string_view> found = in_.take_before(kQuote);
      if (!found) return false;
      json += json_string(*found);
      return true;
    }
    for (char quote : {'"', '\''}) {
      if (!in_.take(std::string_view(&quote, 1))) continue;
      if (!string(quote, text)) return false;
      json += json_string(text);
      return true;
    }
    return std::nullopt;
  }

  bool string(char quote, std::string& text) {
    while (!in_.ended()) {
      const char c = in_.take_char();
      if (c == quote) return true;
      if (c != '\\') {
        text += c;
      } else if (!escape(text)) {
        return false;
      }
    }
    return false;
  }

  bool escape(std::string& text) {
    constexpr std::string_view kLetters = "ntrbfav0\\'\"/", kMeant = {"\n\t\r\b\f\a\v\0\\'\"/", 12};
    if (in_.ended()) return false;
    const char c = in_.take_char();
    if (c == '\n') return true;
    // Some templates write strings as they are: what is no escape stands for itself.
    const Reader behind = in_;
    if (c == 'x' || c == 'u' || c == 'U') {
      if (code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, text)) return true;
      in_ = behind;
    }
    const size_t known = kLetters.find(c);
    if (known == kLetters.npos) text += '\\';
    text += known == kLetters.npos ? c : kMeant[known];
    return true;
  }

  std::optional<char32_t> hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const size_t digit = std::string_view("0123456789abcdefABCDEF").find(in_.take_char());
      if (digit == std::string_view::npos) return std::nullopt;
      value = value << 4 | static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    return value;
  }

  // Two halves of UTF-16 are one character, as in JSON; one alone is none.
  bool code_point(int digits, std::string& text) {
    const auto is_half = [](char32_t c, char32_t first) { return (c & ~char32_t{0x3FF}) == first; };
    std::optional<char32_t> c = hex(digits);
    if (c && is_half(*c, 0xD800) && in_.take("\\u")) {
      const std::optional<char32_t> low = hex(4);
      if (!low || !is_half(*low, 0xDC00)) return false;
      c = 0x10000 + ((*c & 0x3FF) << 10 | (*low & 0x3FF));
    }
    if (!c || *c > 0x10FFFF) return false;
    const bool alone = is_half(*c, 0xD800) || is_half(*c, 0xDC00);
    append_utf8(alone ? char32_t{0xFFFD} : *c, text);
    return true;
  }

  bool list(std::string_view end, std::string& json) {
    json += '[';
    for (bool first = true; !in_.take_behind_space(end); first = false) {
      if (!first && !in_.take(",")) return false;
      if (in_.take_behind_space(end)) break;
      if (!first) json += ", ";
      if (!value(json)) return false;
    }
    json += ']';
    return true;
  }

  bool object(std::string& json) {
    std::vector<WrittenCall::Argument> members;
    if (!arguments(":", "}", members)) return false;
    json += '{';
    for (const WrittenCall::Argument& member : members) {
      if (json.back() != '{') json += ", ";
      json += json_string(member.key) + ": " + member.value;
    }
    json += '}';
    return true;
  }

  // The names of keyword arguments, and all of Gemma's, stand without quotation marks.
  bool key(std::string_view separator, std::string& key) {
    std::string json;
    if (std::optional<bool> string = any_string(json)) {
      if (!*string) return false;
      key = Json::parse(json).get<std::string>();
    } else {
      key = in_.take_until(std::string(separator) + " \t\r\n,(){}[]");
    }
    return !key.empty() && in_.take_behind_space(separator);
  }

  bool word(std::string& json) {
    const std::string_view word = in_.take_until(" \t\r\n,()[]{}");
    if (word == "True" || word == "true") {
      json += "true";
    } else if (word == "False" || word == "false") {
      json += "false";
    } else if (word == "None" || word == "null") {
      json += "null";
    } else if (Json::accept(word)) {
      json += word;
    } else {
      return false;
    }
    return true;
  }

  Reader& in_;
  bool keyed_;
  int level_ = 0;
};

// The value of ATTRIBUTE="..." in a tag.
std::string_view attribute(std::string_view tag, const std::string& name) {
  const std::string begin = name + "=\"";
  const size_t at = tag.find(begin);
  if (at == tag.npos) return {};
  tag.remove_prefix(at + begin.size());
  return tag.substr(0, tag.find('"'));
}

bool read_invoke(Reader& in, const std::string& prefix, WrittenCall& call) {
  const std::string begin = "<" + prefix + "parameter", end = "</" + prefix + "parameter>";
  const std::optional<std::string_view> head = in.take_before(">");
  if (!head) return false;
  call.name = attribute(*head, " name");
  in.skip_space();
  while (in.take(begin)) {
    const std::optional<std::string_view> tag = in.take_before(">");
    const std::optional<std::string_view> value = tag ? in.take_before(end) : std::nullopt;
    if (!value) return false;
    const std::string_view string = attribute(*tag, " string");
    call.arguments.push_back({.key = std::string(attribute(*tag, " name")),
                              .value = std::string(*value),
                              .kind = string == "true" ? ArgumentKind::text
                                      : string == "false" && Json::accept(*value)
                                          ? ArgumentKind::json
                                          : ArgumentKind::by_schema});
    in.skip_space();
  }
  return !call.name.empty() && in.take("</" + prefix + "invoke>");
}

}  // namespace

std::optional<std::string> read_python_value(std::string_view text) {
  if (Json::accept(text)) return std::string(text);
  Reader in(text);
  std::string json;
  if (!Values(in, Values::Notation::python).value(json)) return std::nullopt;
  in.skip_space();
  return in.ended() ? std::optional(json) : std::nullopt;
}

WrittenCalls read_python_calls(std::string_view text) {
  Reader in(text);
  std::vector<WrittenCall> calls;
  const bool list = in.take_behind_space("[");
  in.skip_space();
  while (!in.ended() && !in.next_is("]")) {
    WrittenCall& call = calls.emplace_back();
    call.name = in.take_until("( \t\r\n,[]{}'\"");
    if (call.name.empty() || !in.take_behind_space("(")) return std::nullopt;
    if (!Values(in, Values::Notation::python).arguments("=", ")", call.arguments))
      return std::nullopt;
    in.skip_space();
    if (in.take(",")) in.skip_space();
  }
  if (list && !in.take("]")) return std::nullopt;
  in.skip_space();
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

WrittenCalls read_keyed_calls(std::string_view text) {
  Reader in(text);
  std::vector<WrittenCall> calls;
  in.skip_space();
  while (!in.ended()) {
    WrittenCall& call = calls.emplace_back();
    if (!in.take("call:")) return std::nullopt;
    call.name = in.take_until("{ \t\r\n");
    if (call.name.empty() || !in.take_behind_space("{")) return std::nullopt;
    if (!Values(in, Values::Notation::keyed).arguments(":", "}", call.arguments))
      return std::nullopt;
    in.skip_space();
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

WrittenCalls read_named_objects(std::string_view text) {
  Reader in(text);
  std::vector<WrittenCall> calls;
  if (!in.take_behind_space("[")) return std::nullopt;
  while (!in.take_behind_space("]")) {
    if (!calls.empty() && !in.take(",")) return std::nullopt;
    WrittenCall& call = calls.emplace_back();
    if (!in.take_behind_space("{") || !in.take_behind_space("\"")) return std::nullopt;
    call.name = in.take_until("\"");
    const bool begins = in.take("\"") && in.take_behind_space(":") && in.take_behind_space("{");
    if (!begins || !Values(in, Values::Notation::python).arguments(":", "}", call.arguments))
      return std::nullopt;
    if (!in.take_behind_space("}")) return std::nullopt;
  }
  in.skip_space();
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

WrittenCalls read_invokes(std::string_view text, std::string_view prefix) {
  Reader in(text);
  std::vector<WrittenCall> calls;
  const std::string named(prefix), begin = "<" + named + "invoke";
  in.skip_space();
  while (in.take(begin)) {
    if (!read_invoke(in, named, calls.emplace_back())) return std::nullopt;
    in.skip_space();
  }
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace sluice
