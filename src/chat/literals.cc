#include "src/chat/literals.h"

#include "src/base/json.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr int kMostLevels = 100;

bool is_identifier(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Returns true if a text has a comma and a key with its colon.
bool has_key(std::string_view text) {
  for (size_t comma = text.find(','); comma != text.npos; comma = text.find(',', comma + 1)) {
    TextReader in(text.substr(comma + 1));
    in.skip_space();
    if (is_identifier(in.take_until(": \t\r\n,")) && in.take_behind_space(":")) return true;
  }
  return false;
}

}  // namespace

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Content>
bool Literals::within(Content content) {
  const bool valid = ++level_ <= kMostLevels && content();
  --level_;
  return valid;
}

bool Literals::value(std::string& json) {
  in_.skip_space();
  marked_ = false;
  if (std::optional<bool> string = any_string(json)) return *string;
  if (in_.take("[")) return within([&] { return list("]", json); });
  if (is(Notation::python) && in_.take("(")) return within([&] { return list(")", json); });
  if (in_.take("{")) return within([&] { return object(json); });
  const TextReader begin = in_;
  const size_t size = json.size();
  if (!is(Notation::keyed)) return word(json);
  if (word(json)) {
    in_.skip_space();
    if (in_.ended() || std::string_view(",}]").find(in_.next()) != std::string_view::npos)
      return true;
  }
  in_ = begin;
  json.resize(size);
  return half_marked_string(json);
}

bool Literals::members(std::string_view separator, std::string_view end, std::vector<Member>& all) {
  while (!in_.take_behind_space(end)) {
    if (!all.empty() && !in_.take(",") && !marked_) return false;
    if (in_.take_behind_space(end)) return true;
    Member& member = all.emplace_back();
    if (!key(separator, member.key) || !value(member.value)) return false;
  }
  return true;
}

// nullopt: no string begins here.
std::optional<bool> Literals::any_string(std::string& json) {
  if (is(Notation::keyed)) return marked_string(json);
  std::string text;
  bool found = false;
  const auto next = [&] {
    const TextReader begin = in_;
    if (found) in_.skip_space();
    const bool python = is(Notation::python);
    const bool raw = python && (in_.take("r") || in_.take("R"));
    for (std::string_view quote : {"\"\"\"", "'''", "\"", "'"}) {
      if (quote.size() > 1 && !python) continue;
      if (in_.take(quote)) return std::optional(string(quote, raw, text));
    }
    in_ = begin;
    return std::optional<bool>();
  };
  // Python's strings beside each other are one.
  for (std::optional<bool> read = next(); read; read = next()) {
    if (!*read) return false;
    found = true;
    if (!is(Notation::python)) break;
  }
  if (!found) return std::nullopt;
  json += json_string(text);
  return true;
}

std::optional<bool> Literals::marked_string(std::string& json) {
  if (!in_.take(kKeyedMark)) return std::nullopt;
  const std::optional<std::string_view> text = in_.take_before(kKeyedMark);
  if (!text) return false;
  json += json_string(*text);
  marked_ = true;
  return true;
}

// The first mark was left out. What is before the next one must not be other values, and that one
// must not begin a string.
bool Literals::half_marked_string(std::string& json) {
  const std::optional<std::string_view> text = in_.take_before(kKeyedMark);
  if (!text || text->empty() || has_key(*text)) return false;
  if (text->front() == '"' || text->starts_with("<|")) return false;  // another fault
  const size_t last = text->find_last_not_of(" \t\r\n");
  if (last == text->npos || std::string_view(":,[{(").find((*text)[last]) != text->npos)
    return false;
  in_.skip_space();
  if (!in_.ended() && std::string_view(",}]").find(in_.next()) == std::string_view::npos)
    return false;
  json += json_string(*text);
  return true;
}

bool Literals::string(std::string_view quote, bool raw, std::string& text) {
  escaped_ = odd_ = false;
  while (!in_.ended()) {
    // If some backslashes are not escapes, others may not be escapes either.
    if (in_.take(quote)) return !(escaped_ && odd_);
    const char c = in_.take_char();
    if (c != '\\') {
      text += c;
    } else if (raw) {
      text += c;
      if (!in_.ended()) text += in_.take_char();
    } else if (!(is(Notation::json) ? json_escape(text) : escape(text))) {
      return false;
    }
  }
  return false;
}

bool Literals::escape(std::string& text) {
  constexpr std::string_view kLetters = "ntrbfav\\'\"/", kMeant = {"\n\t\r\b\f\a\v\\'\"/", 11};
  if (in_.ended()) return false;
  const char c = in_.take_char();
  if (c == '\n') return true;
  if (c >= '0' && c <= '7') {
    constexpr char32_t kOctal = 8;
    char32_t value = static_cast<char32_t>(c - '0');
    for (int i = 0; i < 2 && in_.next() >= '0' && in_.next() <= '7'; ++i)
      value = value * kOctal + static_cast<char32_t>(in_.take_char() - '0');
    append_utf8(value, text);
    return true;
  }
  // Some templates write strings as they are: what is no escape stands for itself.
  const TextReader behind = in_;
  if (c == 'x' || c == 'u' || c == 'U') {
    if (code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, text)) return true;
    in_ = behind;
  }
  const size_t known = kLetters.find(c);
  if (known == kLetters.npos) text += '\\';
  text += known == kLetters.npos ? c : kMeant[known];
  return true;
}

bool Literals::json_escape(std::string& text) {
  constexpr std::string_view kLetters = "bfnrt\\/", kMeant = "\b\f\n\r\t\\/";
  const char c = in_.take_char();
  if (c == '\0' || c == '\n' || c == '\r') return false;
  if (c == '"' || c == '\'') {
    text += c;
    return true;
  }
  const size_t known = kLetters.find(c);
  const TextReader behind = in_;
  if (known != kLetters.npos) {
    text += kMeant[known];
  } else if (c != 'u' || !code_point(4, text)) {
    in_ = behind;
    odd_ = true;
    text += {'\\', c};
    return true;
  }
  escaped_ = true;
  return true;
}

std::optional<char32_t> Literals::hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const size_t digit = std::string_view("0123456789abcdefABCDEF").find(in_.take_char());
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | static_cast<char32_t>(digit < 16 ? digit : digit - 6);
  }
  return value;
}

// Two halves of UTF-16 are one character, as in JSON; one alone is none.
bool Literals::code_point(int digits, std::string& text) {
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

bool Literals::list(std::string_view end, std::string& json) {
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

bool Literals::object(std::string& json) {
  std::vector<Member> all;
  if (!members(":", "}", all)) return false;
  json += '{';
  for (const Member& member : all) {
    if (json.back() != '{') json += ", ";
    json += json_string(member.key) + ": " + member.value;
  }
  json += '}';
  return true;
}

bool Literals::key(std::string_view separator, std::string& key) {
  std::string json;
  in_.skip_space();
  if (std::optional<bool> string = any_string(json)) {
    if (!*string) return false;
    key = Json::parse(json).get<std::string>();
    return in_.take_behind_space(separator);
  }
  key = in_.take_until(std::string(separator) + " \t\r\n,(){}[]");
  const bool plain =
      is(Notation::keyed) ? key.find_first_of("\"'<>") == key.npos : is_identifier(key);
  return plain && !key.empty() && in_.take_behind_space(separator);
}

bool Literals::word(std::string& json) {
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

std::optional<std::string> read_literal(std::string_view text, Literals::Notation notation) {
  if (Json::accept(text)) return std::string(text);
  TextReader in(text);
  std::string json;
  if (!Literals(in, notation).value(json)) return std::nullopt;
  in.skip_space();
  return in.ended() ? std::optional(json) : std::nullopt;
}

std::optional<std::string> read_object_text(std::string_view text) {
  std::optional<std::string> json = read_literal(text, Literals::Notation::json);
  TextReader in(json ? *json : std::string_view());
  return in.take_behind_space("{") ? json : std::nullopt;
}

}  // namespace sluice
