#include "src/serve/ordered_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/grammar/json_schema.h"

namespace sluice {
namespace {

// The end of the string that begins at `at`, behind its closing quote.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns the end of the value that begins at `at`, or before it in space.
size_t end_of_value(std::string_view text, size_t at) {
  for (int open = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      at = end_of_string(text, at) - 1;
    } else if (text[at] == '{' || text[at] == '[') {
      ++open;
    } else if (open == 0 && (text[at] == ',' || text[at] == '}' || text[at] == ']')) {
      return at;
    } else if (text[at] == '}' || text[at] == ']') {
      --open;
    }
  }
  return text.size();
}

bool is_string(std::string_view quoted, std::string_view text) {
  if (quoted.find('\\') == std::string_view::npos)
    return quoted.substr(1, quoted.size() - 2) == text;
  return Json::parse(quoted.begin(), quoted.end(), nullptr, false) == Json(text);
}

}  // namespace

std::string_view member_text(std::string_view object, std::string_view key) {
  size_t at = object.find('{');
  while (at < object.size()) {
    const size_t begin = object.find('"', at);
    if (begin == std::string_view::npos) break;
    const size_t end = end_of_string(object, begin);
    const size_t value = object.find(':', end);
    if (value == std::string_view::npos) break;
    at = end_of_value(object, value + 1);
    if (is_string(object.substr(begin, end - begin), key))
      return object.substr(value + 1, at - value - 1);
  }
  return {};
}

void refuse_large_objects(const Json& json, const std::string& where) {
  if (!grammar::has_large_object(json)) return;
  fail(ErrorKind::refused, "{}: an object in it has more than {} members", where,
       grammar::kMaxMembers);
}

void refuse_large_integers(std::string_view text, const std::string& where) {
  constexpr size_t kAlwaysHeld = 18;  // digits
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      at = end_of_string(text, at) - 1;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of("+-.0123456789eE", at), text.size());
    const std::string_view number = text.substr(at, end - at);
    if (number.size() > kAlwaysHeld && number.find_first_of(".eE") == number.npos &&
        Json::parse(number.begin(), number.end(), nullptr, false).is_number_float()) {
      fail(ErrorKind::refused, "{}: the integer {} exceeds 64 bits; give it as a string", where,
           number);
    }
    if (end > at) at = end - 1;
  }
}

bool is_null(const Ordered& object, const char* key) {
  return !object.contains(key) || object.at(key).is_null();
}

std::string string_of(const Ordered& object, const char* key, const std::string& where) {
  if (!object.is_object() || is_null(object, key) || !object.at(key).is_string())
    fail(ErrorKind::refused, "{}: {} must be a string", where, key);
  return object.at(key).get<std::string>();
}

std::string text_of(const Ordered& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail(ErrorKind::refused, "{}: must be a text or a list of texts", where);
  std::string text;
  for (const Ordered& part : content) {
    const std::string type = string_of(part, "type", where);
    const bool refusal = type == "refusal";
    if (!refusal && !type.ends_with("text"))
      fail(ErrorKind::refused, "{}: parts of type {:?} are not supported; send text", where, type);
    if (!text.empty()) text += '\n';
    text += string_of(part, refusal ? "refusal" : "text", where);
  }
  return text;
}

Ordered content_of(const Ordered& content, const std::string& where) {
  std::string text = text_of(content, where);
  if (!content.is_array() || content.size() < 2) return text;
  Ordered parts = Ordered::array();
  for (const Ordered& part : content) {
    const bool refusal = part.at("type") == "refusal";
    parts.push_back({{"type", "text"}, {"text", part.at(refusal ? "refusal" : "text")}});
  }
  return parts;
}

}  // namespace sluice
