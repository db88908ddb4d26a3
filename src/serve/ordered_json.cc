#include "src/serve/ordered_json.h"

#include <fmt/format.h>

#include "src/base/error.h"

namespace sluice {

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
    if (!type.ends_with("text"))
      fail(ErrorKind::refused, "{}: contents of type {:?} are not supported here", where, type);
    if (!text.empty()) text += '\n';
    text += string_of(part, "text", where);
  }
  return text;
}

}  // namespace sluice
