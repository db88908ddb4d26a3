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

Metaspace load_metaspace(const JsonFields& component) {
  using enum Metaspace::Prepend;
  Metaspace metaspace{.replacement = component.string_or("replacement", "\u2581"),
                      .split = component.boolean_or("split", true)};
  if (metaspace.replacement.empty())
    fail(ErrorKind::refused, "{}: replacement is empty", component.where());
  const std::string scheme = component.string_or("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fail(ErrorKind::refused, "{}: unknown prepend_scheme {}", component.where(), scheme);
  // Files from before 2024 have the flag only.
  const bool prefix = component.boolean_or("add_prefix_space", true) && scheme != "never";
  metaspace.prepend = !prefix ? never : scheme == "first" ? first : always;
  return metaspace;
}

}  // namespace sluice
