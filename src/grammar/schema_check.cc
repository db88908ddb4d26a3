#include "src/grammar/schema_check.h"

#include <algorithm>
#include <cmath>

#include "src/grammar/schema_formats.h"
#include "src/text/utf8.h"

namespace sluice::grammar {
namespace {

uint32_t characters_of(const std::string& text) {
  uint32_t all = 0;
  for (size_t at = 0; at < text.size(); ++all)
    at += static_cast<size_t>(utf8_char_at(text, at).bytes);
  return all;
}

bool contains_value(const OrderedJson& list, const OrderedJson& value) {
  return std::ranges::any_of(list, [&](const OrderedJson& v) { return same_value(v, value); });
}

bool is_multiple(double value, double divisor) {
  constexpr double kNear = 1e-9;
  const double quotient = value / divisor;
  return std::abs(quotient - std::round(quotient)) <= kNear * std::max(1.0, std::abs(quotient));
}

OrderedJson list_at(const OrderedJson& schema, const char* key) {
  OrderedJson list = schema.value(key, OrderedJson::array());
  return list.is_array() ? list : OrderedJson::array();
}

OrderedJson object_at(const OrderedJson& schema, const char* key) {
  OrderedJson object = schema.value(key, OrderedJson::object());
  return object.is_object() ? object : OrderedJson::object();
}

}  // namespace

bool is_of_type(const OrderedJson& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "number") return value.is_number();
  return type == "integer" &&
         (value.is_number_integer() ||
          (value.is_number_float() && value.get<double>() == std::floor(value.get<double>())));
}

bool SchemaChecker::matches(const std::string& text, std::string_view pattern, Match match,
                            const std::string& path) {
  try {
    Languages languages(where_);
    const bool found = languages.matches(languages.regex(pattern, match), text);
    document_.count_small_steps(path, languages.steps());
    return found;
  } catch (const Error& e) {
    std::string_view why = e.what();
    if (why.starts_with(where_)) why.remove_prefix(where_.size() + 2);
    document_.refuse(path, "pattern: {}", why);
  }
}

bool SchemaChecker::valid(const OrderedJson& value, const OrderedJson& schema,
                          const std::string& path, int nesting) {
  document_.count_step(path, nesting);
  if (schema.is_boolean()) return schema.get<bool>();
  document_.check_object(schema, path);
  return valid_parts(value, document_.plain(schema, path, nesting), path, nesting);
}

int64_t SchemaChecker::how_many(const OrderedJson& value, const OrderedJson& schemas,
                                const std::string& path, int nesting) {
  return std::ranges::count_if(
      schemas, [&](const OrderedJson& one) { return valid(value, one, path, nesting + 1); });
}

bool SchemaChecker::valid_parts(const OrderedJson& value, const OrderedJson& schema,
                                const std::string& path, int nesting) {
  if (schema.contains("$ref") && !valid(value, document_.target(schema, path), path, nesting + 1))
    return false;
  const OrderedJson all = list_at(schema, "allOf");
  if (how_many(value, all, path, nesting) != std::ssize(all)) return false;
  if (schema.contains("anyOf") && how_many(value, list_at(schema, "anyOf"), path, nesting) == 0)
    return false;
  if (schema.contains("oneOf") && how_many(value, list_at(schema, "oneOf"), path, nesting) != 1)
    return false;
  if (auto type = schema.find("type"); type != schema.end()) {
    const OrderedJson types = type->is_array() ? *type : OrderedJson::array({*type});
    const bool right = std::ranges::any_of(types, [&](const OrderedJson& one) {
      return one.is_string() && is_of_type(value, one.get_ref<const std::string&>());
    });
    if (!right) return false;
  }
  if (schema.contains("enum") && !contains_value(list_at(schema, "enum"), value)) return false;
  if (schema.contains("const") && !same_value(schema.at("const"), value)) return false;
  if (contains_value(list_at(schema, kExcluded), value)) return false;
  if (value.is_string()) return valid_string(value.get_ref<const std::string&>(), schema, path);
  if (value.is_number()) return valid_number(value, schema);
  if (value.is_array()) return valid_array(value, schema, path, nesting);
  return !value.is_object() || valid_object(value, schema, path, nesting);
}

bool SchemaChecker::valid_string(const std::string& text, const OrderedJson& schema,
                                 const std::string& path) {
  const uint32_t size = characters_of(text);
  if (size < document_.count(schema, "minLength", 0, path) ||
      size > document_.count(schema, "maxLength", kUnlimited, path))
    return false;
  auto has = [&](const OrderedJson& pattern, Match match) {
    return matches(text, pattern.get<std::string>(), match, path);
  };
  OrderedJson patterns = list_at(schema, kPatterns), formats = list_at(schema, kFormats);
  if (schema.contains("pattern")) patterns.push_back(schema.at("pattern"));
  if (schema.contains("format")) formats.push_back(schema.at("format"));
  for (const OrderedJson& pattern : patterns)
    if (pattern.is_string() && !has(pattern, Match::within)) return false;
  for (const OrderedJson& pattern : list_at(schema, kUnlike))
    if (pattern.is_string() && has(pattern, Match::within)) return false;
  return std::ranges::all_of(formats, [&](const OrderedJson& format) {
    const std::string_view pattern = format.is_string()
                                         ? format_pattern(format.get_ref<const std::string&>())
                                         : std::string_view();
    return pattern.empty() || has(OrderedJson(pattern), Match::whole);
  });
}

bool SchemaChecker::valid_number(const OrderedJson& value, const OrderedJson& schema) const {
  auto number = [&](const char* key) {
    auto found = schema.find(key);
    return found != schema.end() && found->is_number() ? &*found : nullptr;
  };
  if (const OrderedJson* low = number("minimum"); low && value < *low) return false;
  if (const OrderedJson* high = number("maximum"); high && value > *high) return false;
  if (const OrderedJson* low = number("exclusiveMinimum"); low && value <= *low) return false;
  if (const OrderedJson* high = number("exclusiveMaximum"); high && value >= *high) return false;
  const OrderedJson* divisor = number("multipleOf");
  return divisor == nullptr || divisor->get<double>() <= 0 ||
         is_multiple(value.get<double>(), divisor->get<double>());
}

bool SchemaChecker::valid_array(const OrderedJson& value, const OrderedJson& schema,
                                const std::string& path, int nesting) {
  if (value.size() < document_.count(schema, "minItems", 0, path) ||
      value.size() > document_.count(schema, "maxItems", kUnlimited, path))
    return false;
  const OrderedJson prefix = list_at(schema, "prefixItems");
  for (size_t i = 0; i < value.size(); ++i) {
    const bool fixed = i < prefix.size();
    if (!fixed && !schema.contains("items")) break;
    if (!valid(value[i], fixed ? prefix[i] : schema.at("items"), path, nesting + 1)) return false;
  }
  if (schema.contains("contains")) {
    const auto hits = std::ranges::count_if(value, [&](const OrderedJson& element) {
      return valid(element, schema.at("contains"), path, nesting + 1);
    });
    if (hits < document_.count(schema, "minContains", 1, path) ||
        hits > document_.count(schema, "maxContains", kUnlimited, path))
      return false;
  }
  if (schema.value("uniqueItems", OrderedJson(false)) != OrderedJson(true)) return true;
  for (size_t i = 0; i < value.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (same_value(value[i], value[j])) return false;
  return true;
}

bool SchemaChecker::valid_object(const OrderedJson& value, const OrderedJson& schema,
                                 const std::string& path, int nesting) {
  if (value.size() < document_.count(schema, "minProperties", 0, path) ||
      value.size() > document_.count(schema, "maxProperties", kUnlimited, path))
    return false;
  for (const OrderedJson& name : list_at(schema, "required"))
    if (name.is_string() && !value.contains(name.get_ref<const std::string&>())) return false;
  const OrderedJson properties = object_at(schema, "properties");
  const OrderedJson patterns = object_at(schema, "patternProperties");
  const char* others =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  for (const auto& [name, member] : value.items()) {
    if (schema.contains("propertyNames") &&
        !valid(OrderedJson(name), schema.at("propertyNames"), path, nesting + 1))
      return false;
    bool declared = properties.contains(name);
    if (declared && !valid(member, properties.at(name), path, nesting + 1)) return false;
    for (const auto& [pattern, inner] : patterns.items()) {
      if (!matches(name, pattern, Match::within, path)) continue;
      declared = true;
      if (!valid(member, inner, path, nesting + 1)) return false;
    }
    if (!declared && schema.contains(others) &&
        !valid(member, schema.at(others), path, nesting + 1))
      return false;
  }
  return true;
}

}  // namespace sluice::grammar
