#include "src/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/error.h"

namespace sluice::grammar {
namespace {

constexpr int kMostNesting = 200;
constexpr int64_t kMostSteps = 50'000;

struct Keyword {
  std::string_view name;
  KeywordUse use;
};

constexpr Keyword kKeywords[] = {
    {"type", KeywordUse::any},
    {"enum", KeywordUse::any},
    {"const", KeywordUse::any},
    {"anyOf", KeywordUse::any},
    {"oneOf", KeywordUse::any},
    {"allOf", KeywordUse::any},
    {"$ref", KeywordUse::any},
    {"properties", KeywordUse::object},
    {"required", KeywordUse::object},
    {"additionalProperties", KeywordUse::object},
    {"minProperties", KeywordUse::object},
    {"maxProperties", KeywordUse::object},
    {"items", KeywordUse::array},
    {"prefixItems", KeywordUse::array},
    {"minItems", KeywordUse::array},
    {"maxItems", KeywordUse::array},
    {"minLength", KeywordUse::string},
    {"maxLength", KeywordUse::string},
    {"pattern", KeywordUse::string},
    {"format", KeywordUse::string},
    {"minimum", KeywordUse::number},
    {"maximum", KeywordUse::number},
    {"exclusiveMinimum", KeywordUse::number},
    {"exclusiveMaximum", KeywordUse::number},
    {"multipleOf", KeywordUse::number},
    {"title", KeywordUse::annotation},
    {"description", KeywordUse::annotation},
    {"default", KeywordUse::annotation},
    {"example", KeywordUse::annotation},
    {"examples", KeywordUse::annotation},
    {"deprecated", KeywordUse::annotation},
    {"readOnly", KeywordUse::annotation},
    {"writeOnly", KeywordUse::annotation},
    {"discriminator", KeywordUse::annotation},  // OpenAPI's, beside oneOf
    {"strict", KeywordUse::annotation},
    {"$schema", KeywordUse::annotation},
    {"$id", KeywordUse::annotation},
    {"$comment", KeywordUse::annotation},
    {"$defs", KeywordUse::annotation},  // they count where they are referred to
    {"definitions", KeywordUse::annotation},
};

OrderedJson common(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson found = OrderedJson::array();
  for (const OrderedJson& value : a)
    if (std::ranges::find(b, value) != b.end()) found.push_back(value);
  return found;
}

OrderedJson types_of(const OrderedJson& type) {
  return type.is_array() ? type : OrderedJson::array({type});
}

// Integers are numbers, too.
OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson types = common(types_of(a), types_of(b));
  for (auto [x, y] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const OrderedJson some = types_of(*x), others = types_of(*y);
    auto has = [](const OrderedJson& list, const char* type) {
      return std::ranges::find(list, OrderedJson(type)) != list.end();
    };
    if (has(some, "integer") && has(others, "number") && !has(types, "integer"))
      types.push_back("integer");
  }
  return types;
}

}  // namespace

KeywordUse use_of(std::string_view keyword) {
  if (keyword.starts_with("x-")) return KeywordUse::annotation;
  const auto* known = std::ranges::find(kKeywords, keyword, &Keyword::name);
  return known == std::end(kKeywords) ? KeywordUse::no : known->use;
}

std::string below(const std::string& path, std::string_view key) {
  std::string pointer = path + "/";
  for (char c : key) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return pointer;
}

void SchemaDocument::refuse_text(const std::string& path, const std::string& why) const {
  fail(ErrorKind::refused, "{}: the schema{}{}: {}", where_, path.empty() ? "" : " at ", path, why);
}

void SchemaDocument::count_step(const std::string& path, int nesting) {
  if (nesting > kMostNesting) refuse(path, "schemas are nested too deeply, or refer to themselves");
  if (++steps_ > kMostSteps) refuse(path, "its parts are used in more than {} ways", kMostSteps);
}

void SchemaDocument::check_keywords(const OrderedJson& schema, const std::string& path) const {
  if (!schema.is_object()) refuse(path, "a schema must be an object, true or false");
  for (const auto& [key, value] : schema.items())
    if (use_of(key) == KeywordUse::no) refuse(path, "{} is not supported", key);
}

uint32_t SchemaDocument::count(const OrderedJson& schema, const char* keyword, uint32_t fallback,
                               const std::string& path) const {
  auto found = schema.find(keyword);
  if (found == schema.end()) return fallback;
  const bool whole =
      found->is_number_unsigned() ||
      (found->is_number_float() && found->get<double>() >= 0 && found->get<double>() < 1e9 &&
       found->get<double>() == static_cast<double>(found->get<uint64_t>()));
  if (!whole) refuse(path, "{} must be an integer, 0 or above", keyword);
  return static_cast<uint32_t>(std::min<uint64_t>(found->get<uint64_t>(), kUnlimited - 1));
}

const OrderedJson& SchemaDocument::target(const OrderedJson& schema,
                                          const std::string& path) const {
  const OrderedJson& ref = schema.at("$ref");
  if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with('#'))
    refuse(path, "$ref must name a place in this schema: \"#/$defs/NAME\"");
  const auto& name = ref.get_ref<const std::string&>();
  try {
    return root_.at(OrderedJson::json_pointer(name.substr(1)));
  } catch (const OrderedJson::exception&) {
    refuse(path, "$ref {:?} names nothing in this schema", name);
  }
}

OrderedJson SchemaDocument::flat(const OrderedJson& schema, const std::string& path, int nesting) {
  count_step(path, nesting);
  if (schema == OrderedJson(true)) return OrderedJson::object();
  if (schema == OrderedJson(false)) refuse(path, "false is valid for no value");
  check_keywords(schema, path);
  OrderedJson whole = OrderedJson::object();
  for (const auto& [key, value] : schema.items())
    if (key != "$ref" && key != "allOf" && use_of(key) != KeywordUse::annotation)
      whole[key] = value;
  if (schema.contains("$ref"))
    whole = both(flat(target(schema, path), path, nesting + 1), whole, path);
  if (!schema.contains("allOf")) return whole;
  const OrderedJson& all = schema.at("allOf");
  if (!all.is_array() || all.empty()) refuse(path, "allOf must be a list of schemas");
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string at = below(below(path, "allOf"), std::to_string(i));
    whole = both(std::move(whole), flat(all[i], at, nesting + 1), path);
  }
  return whole;
}

OrderedJson SchemaDocument::both(OrderedJson a, const OrderedJson& b, const std::string& path) {
  check_closed(a, b, path);
  check_closed(b, a, path);
  for (const auto& [keyword, value] : b.items()) join(a, keyword, value, path);
  return a;
}

// One part that allows no others than its properties forbids those of the other.
void SchemaDocument::check_closed(const OrderedJson& a, const OrderedJson& b,
                                  const std::string& path) const {
  auto additional = a.find("additionalProperties");
  if (additional == a.end() || *additional == OrderedJson(true) || !b.contains("properties"))
    return;
  const OrderedJson properties = a.value("properties", OrderedJson::object());
  for (const auto& [name, value] : b.at("properties").items()) {
    if (!properties.contains(name)) {
      refuse(path,
             "additionalProperties of one part of allOf is about {:?} of another, which is "
             "not supported",
             name);
    }
  }
}

void SchemaDocument::join(OrderedJson& into, const std::string& keyword, const OrderedJson& value,
                          const std::string& path) const {
  auto found = into.find(keyword);
  if (found == into.end()) {
    into[keyword] = value;
    return;
  }
  OrderedJson& mine = *found;
  if (mine == value) return;
  const bool numbers = mine.is_number() && value.is_number();
  if (keyword == "properties" && mine.is_object() && value.is_object()) {
    for (const auto& [name, schema] : value.items()) {
      OrderedJson whole = schema;
      if (mine.contains(name)) {
        whole = OrderedJson::object();
        whole["allOf"] = OrderedJson::array({mine[name], schema});
      }
      mine[name] = std::move(whole);
    }
  } else if (keyword == "required" && mine.is_array() && value.is_array()) {
    for (const OrderedJson& name : value)
      if (std::ranges::find(mine, name) == mine.end()) mine.push_back(name);
  } else if (keyword == "type") {
    mine = common_types(mine, value);
    if (mine.empty()) refuse(path, "allOf: no value has the types of all parts");
  } else if (keyword == "enum" && mine.is_array() && value.is_array()) {
    mine = common(mine, value);
  } else if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) {
    mine = std::max(mine, value);
  } else if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) {
    mine = std::min(mine, value);
  } else {
    refuse(path, "{} differs between parts of allOf, which is not supported", keyword);
  }
}

}  // namespace sluice::grammar
