#include "src/grammar/schema_keywords.h"

#include <algorithm>
#include <charconv>
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
    {"$dynamicRef", KeywordUse::any},
    {"$recursiveRef", KeywordUse::any},
    {"not", KeywordUse::any},
    {"if", KeywordUse::any},
    {"then", KeywordUse::any},
    {"else", KeywordUse::any},
    {"nullable", KeywordUse::any},  // OpenAPI's
    {kExcluded, KeywordUse::any},
    {"properties", KeywordUse::object},
    {"required", KeywordUse::object},
    {"additionalProperties", KeywordUse::object},
    {"minProperties", KeywordUse::object},
    {"maxProperties", KeywordUse::object},
    {"patternProperties", KeywordUse::object},
    {"propertyNames", KeywordUse::object},
    {"unevaluatedProperties", KeywordUse::object},
    {"dependentRequired", KeywordUse::object},
    {"dependentSchemas", KeywordUse::object},
    {"dependencies", KeywordUse::object},
    {"items", KeywordUse::array},
    {"prefixItems", KeywordUse::array},
    {"minItems", KeywordUse::array},
    {"maxItems", KeywordUse::array},
    {"additionalItems", KeywordUse::array},
    {"unevaluatedItems", KeywordUse::array},
    {"uniqueItems", KeywordUse::array},
    {"contains", KeywordUse::array},
    {"minContains", KeywordUse::array},
    {"maxContains", KeywordUse::array},
    {"minLength", KeywordUse::string},
    {"maxLength", KeywordUse::string},
    {"pattern", KeywordUse::string},
    {"format", KeywordUse::string},
    {kUnlike, KeywordUse::string},
    {kPatterns, KeywordUse::string},
    {kFormats, KeywordUse::string},
    {"minimum", KeywordUse::number},
    {"maximum", KeywordUse::number},
    {"exclusiveMinimum", KeywordUse::number},
    {"exclusiveMaximum", KeywordUse::number},
    {"multipleOf", KeywordUse::number},
};

OrderedJson common(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson found = OrderedJson::array();
  for (const OrderedJson& value : a)
    if (std::ranges::any_of(b, [&](const OrderedJson& other) { return same_value(value, other); }))
      found.push_back(value);
  return found;
}

// %41 is A, as in the fragment of a URI.
std::string unescaped(std::string_view text) {
  std::string all;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* digits = text.data() + i + 1;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2;
    all += escape ? static_cast<char>(code) : text[i];
    if (escape) i += 2;
  }
  return all;
}

OrderedJson types_of(const OrderedJson& type) {
  return type.is_array() ? type : OrderedJson::array({type});
}

// Both hold.
OrderedJson together(const OrderedJson& a, const OrderedJson& b) {
  if (a == OrderedJson(true) || a == b || b == OrderedJson(false)) return b;
  if (b == OrderedJson(true) || a == OrderedJson(false)) return a;
  OrderedJson whole = OrderedJson::object();
  whole["allOf"] = OrderedJson::array({a, b});
  return whole;
}

bool holds_schema(std::string_view keyword) {
  return keyword == "items" || keyword == "additionalProperties" || keyword == "propertyNames" ||
         keyword == "unevaluatedProperties";
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
  const auto* known = std::ranges::find(kKeywords, keyword, &Keyword::name);
  return known == std::end(kKeywords) ? KeywordUse::annotation : known->use;
}

std::string below(const std::string& path, std::string_view key) {
  std::string pointer = path + "/";
  for (char c : key) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return pointer;
}

bool same_value(const OrderedJson& a, const OrderedJson& b) {
  if (!a.is_structured() || !b.is_structured()) return a == b;
  if (a.size() != b.size() || a.type() != b.type()) return false;
  if (a.is_array())
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same_value(x, y); });
  return std::ranges::all_of(a.items(), [&](const auto& member) {
    auto other = b.find(member.key());
    return other != b.end() && same_value(member.value(), *other);
  });
}

std::string SchemaDocument::sentence(const std::string& path, const std::string& why) const {
  return fmt::format("{}: the schema{}{}: {}", where_, path.empty() ? "" : " at ", path, why);
}

void SchemaDocument::refuse_text(const std::string& path, const std::string& why) const {
  throw Error(ErrorKind::refused, sentence(path, why));
}

void SchemaDocument::count_step(const std::string& path, int nesting) {
  if (nesting > kMostNesting) refuse(path, "schemas are nested too deeply, or refer to themselves");
  if (++steps_ > kMostSteps) refuse(path, "its parts are used in more than {} ways", kMostSteps);
}

void SchemaDocument::count_small_steps(const std::string& path, uint64_t steps) {
  constexpr uint64_t kToAStep = 64;
  steps_ += static_cast<int64_t>(steps / kToAStep);
  if (steps_ > kMostSteps) refuse(path, "its parts are used in more than {} ways", kMostSteps);
}

void SchemaDocument::check_object(const OrderedJson& schema, const std::string& path) const {
  if (!schema.is_object()) refuse(path, "a schema must be an object, true or false");
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

// The schema with this $anchor; null: there is none.
const OrderedJson* SchemaDocument::anchored(const OrderedJson& in, const std::string& name,
                                            int nesting) const {
  if (!in.is_structured() || nesting > kMostNesting) return nullptr;
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    auto found = in.is_object() ? in.find(key) : in.end();
    if (found != in.end() && *found == name) return &in;
  }
  for (const OrderedJson& inner : in)
    if (const OrderedJson* found = anchored(inner, name, nesting + 1)) return found;
  return nullptr;
}

const OrderedJson& SchemaDocument::target(const OrderedJson& schema,
                                          const std::string& path) const {
  const OrderedJson& ref = schema.at("$ref");
  if (!ref.is_string()) refuse(path, "$ref must be a string");
  const auto& given = ref.get_ref<const std::string&>();
  std::string name = given;
  auto id = root_.is_object() ? root_.find("$id") : root_.end();
  if (id != root_.end() && id->is_string() && name.starts_with(id->get_ref<const std::string&>()))
    name.erase(0, id->get_ref<const std::string&>().size());
  if (name.empty() && !given.empty()) return root_;
  if (!name.starts_with('#'))
    refuse(path, "$ref must name a place in this schema: \"#/$defs/NAME\"");
  name = unescaped(name.substr(1));
  if (!name.empty() && !name.starts_with('/')) {
    if (const OrderedJson* found = anchored(root_, name, 0)) return *found;
  } else {
    try {
      return root_.at(OrderedJson::json_pointer(name));
    } catch (const OrderedJson::exception&) {
    }
  }
  refuse(path, "$ref {:?} names nothing in this schema", given);
}

OrderedJson SchemaDocument::flat(const OrderedJson& given, const std::string& path, int nesting) {
  count_step(path, nesting);
  if (given == OrderedJson(true)) return OrderedJson::object();
  if (given == OrderedJson(false)) no_value(path, "false is valid for no value");
  check_object(given, path);
  const OrderedJson schema = plain(given, path, nesting);
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

OrderedJson SchemaDocument::both(OrderedJson a, OrderedJson b, const std::string& path) {
  for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (x->contains("prefixItems") && (y->contains("items") || y->contains("prefixItems")) &&
        x->value("prefixItems", OrderedJson()) != y->value("prefixItems", OrderedJson()))
      refuse(path, "prefixItems of one part of allOf beside items of another is not supported");
  }
  const OrderedJson before = a;
  close(b, a, path);
  close(before, b, path);
  for (const auto& [keyword, value] : b.items()) join(a, keyword, value, path);
  return a;
}

// Rules of `a` for members that it does not declare apply to those that only `b` declares.
void SchemaDocument::close(const OrderedJson& a, OrderedJson& b, const std::string& path) const {
  auto additional = a.find("additionalProperties");
  if (additional == a.end() || *additional == OrderedJson(true)) return;
  if (b.contains("patternProperties") ||
      (a.contains("patternProperties") && b.contains("properties")))
    refuse(path,
           "patternProperties beside additionalProperties of another part of allOf is not "
           "supported");
  auto declared = b.find("properties");
  if (declared == b.end() || !declared->is_object()) return;
  const OrderedJson properties = a.value("properties", OrderedJson::object());
  for (auto& [name, schema] : declared->items())
    if (!properties.contains(name)) schema = together(schema, *additional);
}

// One of each.
void SchemaDocument::join_alternatives(OrderedJson& mine, const OrderedJson& value,
                                       const std::string& path) const {
  constexpr size_t kMost = 256;
  if (!mine.is_array() || !value.is_array() || mine.size() * value.size() > kMost)
    refuse(path, "anyOf or oneOf of several parts have more than {} combinations", kMost);
  OrderedJson pairs = OrderedJson::array();
  for (const OrderedJson& a : mine)
    for (const OrderedJson& b : value) pairs.push_back(together(a, b));
  mine = std::move(pairs);
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
  const bool objects = mine.is_object() && value.is_object();
  const bool lists = mine.is_array() && value.is_array();
  if (objects && (keyword == "properties" || keyword == "patternProperties")) {
    for (const auto& [name, schema] : value.items())
      mine[name] = mine.contains(name) ? together(mine[name], schema) : schema;
  } else if (lists && (keyword == "required" || keyword.starts_with('\1'))) {
    for (const OrderedJson& name : value)
      if (std::ranges::find(mine, name) == mine.end()) mine.push_back(name);
  } else if (keyword == "type") {
    mine = common_types(mine, value);
    if (mine.empty()) no_value(path, "allOf: no value has the types of all parts");
  } else if (keyword == "enum" && lists) {
    mine = common(mine, value);
  } else if (keyword == "const") {
    if (!same_value(mine, value)) no_value(path, "allOf: const differs between parts");
  } else if (holds_schema(keyword)) {
    mine = together(mine, value);
  } else if (keyword == "anyOf" || keyword == "oneOf") {
    join_alternatives(mine, value, path);
  } else if (keyword == "pattern" || keyword == "format") {
    OrderedJson& more = into[keyword == "pattern" ? kPatterns : kFormats];
    if (!more.is_array()) more = OrderedJson::array();
    more.push_back(value);
  } else if (keyword == "uniqueItems") {
    mine = true;
  } else if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) {
    mine = std::max(mine, value);
  } else if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) {
    mine = std::min(mine, value);
  } else {
    refuse(path, "{} differs between parts of allOf, which is not supported", keyword);
  }
}

}  // namespace sluice::grammar
