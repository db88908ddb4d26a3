#include "src/serve/apis/ordered_json.h"

#include "src/base/error.h"
#include "src/grammar/json_schema.h"

namespace sluice {

void refuse_large_objects(const OrderedJson& json, const std::string& where) {
  if (!grammar::has_large_object(json)) return;
  fail(ErrorKind::refused, "{}: an object in it has more than {} members", where,
       grammar::kMaxMembers);
}

void refuse_not_finite(const OrderedJson& json, const std::string& where) {
  if (!grammar::is_finite(json))
    fail(ErrorKind::refused, "{}: NaN and Infinity are not JSON", where);
}

bool asks_for_nothing(const OrderedJson& value) {
  return value.is_null() || value == OrderedJson(false) || value == OrderedJson("") ||
         (value.is_structured() && value.empty());
}

const OrderedJson& member(const OrderedJson& object, const char* key) {
  static const OrderedJson kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string string_of(const OrderedJson& object, const char* key, const std::string& where) {
  const OrderedJson& text = member(object, key);
  if (!text.is_string()) fail(ErrorKind::refused, "{}: {} must be a string", where, key);
  return text.get<std::string>();
}

OrderedJson object_of(const OrderedJson& object, const char* key, const std::string& where) {
  if (is_null(object, key)) return OrderedJson::object();
  if (!object.at(key).is_object()) fail(ErrorKind::refused, "{}: {} must be an object", where, key);
  return object.at(key);
}

std::string text_of(const OrderedJson& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail(ErrorKind::refused, "{}: must be a text or a list of texts", where);
  std::string text;
  for (const OrderedJson& part : content) {
    const std::string type = string_of(part, "type", where);
    const bool refusal = type == "refusal";
    if (!refusal && !type.ends_with("text"))
      fail(ErrorKind::refused, "{}: parts of type {:?} are not supported; send text", where, type);
    if (!text.empty()) text += '\n';
    text += string_of(part, refusal ? "refusal" : "text", where);
  }
  return text;
}

OrderedJson content_of(const OrderedJson& content, const std::string& where) {
  std::string text = text_of(content, where);
  if (!content.is_array() || content.size() < 2) return text;
  OrderedJson parts = OrderedJson::array();
  for (const OrderedJson& part : content) {
    const bool refusal = part.at("type") == "refusal";
    parts.push_back({{"type", "text"}, {"text", part.at(refusal ? "refusal" : "text")}});
  }
  return parts;
}

}  // namespace sluice
