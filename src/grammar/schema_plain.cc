// Schemas in fewer keywords.
#include <algorithm>
#include <array>
#include <utility>

#include "src/grammar/schema_formats.h"
#include "src/grammar/schema_keywords.h"

namespace sluice::grammar {
namespace {

constexpr std::array<std::string_view, 6> kTypes{"object", "array",   "string",
                                                 "number", "boolean", "null"};

uint64_t values_in(const OrderedJson& json) {
  uint64_t all = 1;
  if (json.is_structured())
    for (const OrderedJson& inner : json) all += values_in(inner);
  return all;
}

bool is_true(const OrderedJson& schema) {
  return schema == OrderedJson(true) || (schema.is_object() && schema.empty());
}

bool erase_if(OrderedJson& schema, const char* key, bool says_nothing) {
  if (says_nothing) schema.erase(key);
  return says_nothing;
}

OrderedJson one(const char* key, OrderedJson value) {
  OrderedJson schema = OrderedJson::object();
  schema[key] = std::move(value);
  return schema;
}

OrderedJson of_type(const char* type, const char* key, OrderedJson value) {
  OrderedJson schema = one("type", type);
  schema[key] = std::move(value);
  return schema;
}

// An object without this member.
OrderedJson without_member(const std::string& name) {
  return one("properties", one(name.c_str(), false));
}

OrderedJson list_of(OrderedJson a, OrderedJson b) {
  OrderedJson list = OrderedJson::array();
  list.push_back(std::move(a));
  list.push_back(std::move(b));
  return list;
}

// Removes keywords that constrain nothing as they are written.
void drop_what_says_nothing(OrderedJson& s) {
  auto is = [&](const char* key, const OrderedJson& value) {
    auto found = s.find(key);
    return found != s.end() && *found == value;
  };
  erase_if(s, "uniqueItems", is("uniqueItems", false));
  erase_if(s, "nullable", is("nullable", false));
  for (const char* key : {"unevaluatedProperties", "unevaluatedItems", "propertyNames"})
    erase_if(s, key, s.contains(key) && is_true(s.at(key)));
  for (const char* key :
       {"patternProperties", "dependentRequired", "dependentSchemas", "dependencies"})
    erase_if(s, key, is(key, OrderedJson::object()));
  erase_if(s, "contains", is("minContains", 0) && !s.contains("maxContains"));
  if (!s.contains("contains")) {
    s.erase("minContains");
    s.erase("maxContains");
  }
  erase_if(s, "if", !s.contains("then") && !s.contains("else"));
  if (!s.contains("if")) {
    s.erase("then");
    s.erase("else");
  }
  auto format = s.find("format");  // how a number is stored, or how a text is shown
  if (format != s.end() &&
      (!format->is_string() || format_pattern(format->get_ref<const std::string&>()).empty()))
    s.erase("format");
}

// Rewrites keywords of drafts before 2020-12 and of OpenAPI 3.0.
void renew(OrderedJson& s) {
  for (auto [exclusive, bound] :
       {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
    auto found = s.find(exclusive);
    if (found == s.end() || !found->is_boolean()) continue;
    const bool excludes = found->get<bool>() && s.contains(bound);
    s.erase(exclusive);
    if (!excludes) continue;
    s[exclusive] = s.at(bound);
    s.erase(bound);
  }
  if (s.contains("items") && s.at("items").is_array()) {
    s["prefixItems"] = s.at("items");
    s.erase("items");
    if (s.contains("additionalItems")) s["items"] = s.at("additionalItems");
    if (s.at("prefixItems").empty()) s.erase("prefixItems");
  }
  s.erase("additionalItems");
  if (s.contains("unevaluatedItems") && !s.contains("items")) s["items"] = s.at("unevaluatedItems");
  s.erase("unevaluatedItems");
  for (const char* key : {"$dynamicRef", "$recursiveRef"}) {
    if (s.contains(key) && !s.contains("$ref")) s["$ref"] = s.at(key);
    s.erase(key);
  }
}

OrderedJson other_types(const OrderedJson& given) {
  const OrderedJson types = given.is_array() ? given : OrderedJson::array({given});
  auto has = [&](std::string_view type) {
    return std::ranges::find(types, OrderedJson(type)) != types.end();
  };
  OrderedJson others = OrderedJson::array();
  for (std::string_view type : kTypes)
    if (!has(type) && !(type == "number" && has("integer"))) others.push_back(type);
  return others;
}

bool is_refined(const OrderedJson& s) {
  return std::ranges::any_of(std::array{"$ref", "allOf", "anyOf", "oneOf"},
                             [&](const char* key) { return s.contains(key); });
}

// null is valid, too.
void let_be_null(OrderedJson& s) {
  if (is_refined(s)) {
    s = one("anyOf", list_of(std::move(s), one("type", "null")));
    return;
  }
  if (s.contains("const")) {
    s["enum"] = OrderedJson::array({s.at("const")});
    s.erase("const");
  }
  if (s.contains("enum") && s.at("enum").is_array()) s["enum"].push_back(nullptr);
  if (!s.contains("type")) return;
  OrderedJson& types = s["type"];
  if (!types.is_array()) types = OrderedJson::array({types});
  if (std::ranges::find(types, OrderedJson("null")) == types.end()) types.push_back("null");
}

}  // namespace

// if C then A else B is: C and A, or not C and B.
void SchemaDocument::add_conditions(OrderedJson& schema, OrderedJson& more,
                                    const std::string& path) const {
  if (!schema.contains("if")) return;
  const OrderedJson condition = schema.at("if");
  if (!condition.is_boolean() && !condition.is_object()) refuse(path, "if must be a schema");
  OrderedJson then = list_of(condition, schema.value("then", OrderedJson(true)));
  OrderedJson otherwise = list_of(one("not", condition), schema.value("else", OrderedJson(true)));
  more.push_back(
      one("anyOf", list_of(one("allOf", std::move(then)), one("allOf", std::move(otherwise)))));
  for (const char* key : {"if", "then", "else"}) schema.erase(key);
}

// Adds: either a member is not there, or others are there too.
void SchemaDocument::add_dependent(OrderedJson& schema, OrderedJson& more,
                                   const std::string& path) const {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword)) continue;
    if (!schema.at(keyword).is_object()) refuse(path, "{} must be an object", keyword);
    for (const auto& [name, asked] : schema.at(keyword).items()) {
      OrderedJson there = one("required", OrderedJson::array({name}));
      if (asked.is_array()) {
        for (const OrderedJson& other : asked) there["required"].push_back(other);
      } else {
        there["allOf"] = OrderedJson::array({asked});
      }
      more.push_back(one("anyOf", list_of(without_member(name), std::move(there))));
    }
    schema.erase(keyword);
  }
}

OrderedJson SchemaDocument::plain(OrderedJson schema, const std::string& path, int nesting) {
  count_small_steps(path, values_in(schema));  // it is a copy
  constexpr std::array kLists{kExcluded, kUnlike, kPatterns, kFormats};
  for (const char* key : kLists)
    if (schema.contains(key) && !schema.at(key).is_array()) refuse(path, "{} must be a list", key);
  auto pattern = schema.find("pattern");
  if (pattern != schema.end() && !pattern->is_string()) refuse(path, "pattern must be a string");
  drop_what_says_nothing(schema);
  renew(schema);
  OrderedJson more = OrderedJson::array();
  add_conditions(schema, more, path);
  add_dependent(schema, more, path);
  if (schema.contains("not")) {
    more.push_back(negation(schema.at("not"), below(path, "not"), nesting + 1));
    schema.erase("not");
  }
  if (!more.empty()) {
    OrderedJson& all = schema["allOf"];
    if (!all.is_array()) all = OrderedJson::array();
    for (OrderedJson& part : more) all.push_back(std::move(part));
  }
  if (!schema.contains("nullable")) return schema;
  if (schema.at("nullable") != OrderedJson(true)) refuse(path, "nullable must be true or false");
  schema.erase("nullable");
  let_be_null(schema);
  return schema;
}

// Returns a schema that is valid for exactly the values for which the other is not: one of its
// keywords does not hold.
OrderedJson SchemaDocument::negation(const OrderedJson& given, const std::string& path,
                                     int nesting) {
  count_step(path, nesting);
  if (given.is_boolean()) return !given.get<bool>();
  check_object(given, path);
  const OrderedJson schema = plain(given, path, nesting);
  OrderedJson alternatives = OrderedJson::array();
  for (const auto& [key, value] : schema.items())
    if (use_of(key) != KeywordUse::annotation) negate(key, value, alternatives, path, nesting);
  if (alternatives.empty()) return false;
  if (alternatives.size() == 1) return alternatives.front();
  return one("anyOf", std::move(alternatives));
}

// A count or a bound that does not hold: another one of the same type does.
bool SchemaDocument::negate_limit(const std::string& key, const OrderedJson& value,
                                  OrderedJson& alternatives, const std::string& path) const {
  struct Limit {
    std::string_view key;
    const char* type;
    const char* other;
    int step;  // from one to the other
  };
  constexpr Limit kLimits[] = {{"minLength", "string", "maxLength", -1},
                               {"maxLength", "string", "minLength", 1},
                               {"minItems", "array", "maxItems", -1},
                               {"maxItems", "array", "minItems", 1},
                               {"minProperties", "object", "maxProperties", -1},
                               {"maxProperties", "object", "minProperties", 1},
                               {"minimum", "number", "exclusiveMaximum", 0},
                               {"maximum", "number", "exclusiveMinimum", 0},
                               {"exclusiveMinimum", "number", "maximum", 0},
                               {"exclusiveMaximum", "number", "minimum", 0}};
  const auto* limit = std::ranges::find(kLimits, key, &Limit::key);
  if (limit == std::end(kLimits)) return false;
  if (limit->step == 0) {
    alternatives.push_back(of_type(limit->type, limit->other, value));
    return true;
  }
  const uint32_t given = count(one(key.c_str(), value), key.c_str(), 0, path);
  if (limit->step > 0 || given > 0)
    alternatives.push_back(
        of_type(limit->type, limit->other, limit->step > 0 ? given + 1 : given - 1));
  return true;
}

void SchemaDocument::negate(const std::string& key, const OrderedJson& value,
                            OrderedJson& alternatives, const std::string& path, int nesting) {
  auto add = [&](OrderedJson schema) { alternatives.push_back(std::move(schema)); };
  if (negate_limit(key, value, alternatives, path)) return;
  if (key == "type") {
    OrderedJson others = other_types(value);
    if (!others.empty()) add(one("type", std::move(others)));
  } else if (key == "const") {
    add(one(kExcluded, OrderedJson::array({value})));
  } else if (key == "enum" || key == kExcluded) {
    add(one(key == "enum" ? kExcluded : "enum", value));
  } else if (key == "required" && value.is_array()) {
    for (const OrderedJson& name : value) {
      if (!name.is_string()) continue;
      OrderedJson absent = without_member(name.get<std::string>());
      absent["type"] = "object";
      add(std::move(absent));
    }
  } else if (key == "properties" && value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      OrderedJson other = of_type("object", "required", OrderedJson::array({name}));
      other["properties"] = one(name.c_str(), one("not", inner));
      add(std::move(other));
    }
  } else if (key == "items") {
    add(of_type("array", "contains", one("not", value)));
  } else if (key == "contains") {
    add(of_type("array", "items", one("not", value)));
  } else if (key == "anyOf" || key == "oneOf" || key == "allOf") {
    if (!value.is_array()) refuse(path, "{} must be a list of schemas", key);
    OrderedJson parts = OrderedJson::array();
    for (const OrderedJson& part : value) parts.push_back(one("not", part));
    add(one(key == "allOf" ? "anyOf" : "allOf", std::move(parts)));
  } else if (key == "$ref") {
    add(negation(target(one(key.c_str(), value), path), path, nesting + 1));
  } else if (key == "pattern") {
    add(of_type("string", kUnlike, OrderedJson::array({value})));
  } else if (!((key == "additionalProperties" || key == "unevaluatedProperties") &&
               is_true(value))) {
    refuse(path, "{} within not or if is not supported", key);
  }
}

}  // namespace sluice::grammar
