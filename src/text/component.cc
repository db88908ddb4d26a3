#include "src/text/component.h"

namespace sluice {

const Json& array_field(const JsonFields& fields, const char* key) {
  const Json& value = fields.raw(key);
  if (!value.is_array()) fail(ErrorKind::refused, "{}: {} must be an array", fields.where(), key);
  return value;
}

Pattern load_pattern(const JsonFields& component) {
  JsonFields pattern(component.raw("pattern"), component.where() + ": pattern");
  if (pattern.has("String")) return Pattern::literal(pattern.string("String"), component.where());
  return Pattern::parse(pattern.string("Regex"), component.where());
}

}  // namespace sluice
