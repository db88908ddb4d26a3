#include "src/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/regex.h"
#include "src/grammar/schema_formats.h"
#include "src/grammar/schema_keywords.h"
#include "src/grammar/schema_objects.h"

namespace sluice::grammar {
namespace {

bool is_of_type(const OrderedJson& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

class SchemaCompiler : public SchemaValues {
 public:
  SchemaCompiler(GrammarBuilder& builder, const OrderedJson& root, int64_t& steps)
      : builder_(builder),
        parts_(builder),
        document_(root, builder.where(), steps),
        objects_(builder, parts_, document_, *this) {}

  Expr compile(const OrderedJson& whole) {
    Expr root = value(whole, "", 0);
    // What is referred to comes by and by, so that no chain of references is too long.
    while (!waiting_.empty()) {
      auto [rule, schema, path] = std::move(waiting_.back());
      waiting_.pop_back();
      builder_.define(rule, value(*schema, path, 0));
    }
    return root;
  }

  Expr value(const OrderedJson& schema, const std::string& path, int nesting) override {
    document_.count_step(path, nesting);
    if (schema == OrderedJson(true)) return parts_.value();
    if (schema == OrderedJson(false)) document_.refuse(path, "false is valid for no value");
    document_.check_keywords(schema, path);
    if (schema.contains("$ref") && is_only_ref(schema)) return reference(schema, path);
    if (schema.contains("$ref") || schema.contains("allOf"))
      return value(document_.flat(schema, path, nesting + 1), path, nesting + 1);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (schema.contains(keyword)) return any_of(schema, keyword, path, nesting);
    if (schema.contains("const"))
      return listed(schema, OrderedJson::array({schema.at("const")}), path);
    if (schema.contains("enum")) return listed(schema, schema.at("enum"), path);
    std::vector<Expr> types;
    for (const std::string& type : types_of(schema, path))
      types.push_back(of_type(schema, type, path, nesting));
    return types.empty() ? parts_.value() : builder_.choice(std::move(types));
  }

 private:
  struct Waiting {
    RuleId rule;
    const OrderedJson* schema;
    std::string path;
  };

  static bool is_only_ref(const OrderedJson& schema) {
    for (const auto& [key, value] : schema.items())
      if (key != "$ref" && use_of(key) != KeywordUse::annotation) return false;
    return true;
  }

  Expr reference(const OrderedJson& schema, const std::string& path) {
    const OrderedJson& target = document_.target(schema, path);
    auto known = rules_.find(&target);
    if (known == rules_.end()) {
      const std::string name = schema.at("$ref").get<std::string>();
      known = rules_.emplace(&target, builder_.rule(name)).first;
      waiting_.push_back({known->second, &target, name.substr(1)});
    }
    return builder_.call(known->second);
  }

  // Each alternative together with what is said beside them.
  Expr any_of(const OrderedJson& schema, const char* keyword, const std::string& path,
              int nesting) {
    const OrderedJson& given = schema.at(keyword);
    if (!given.is_array() || given.empty())
      document_.refuse(path, "{} must be a list of schemas", keyword);
    OrderedJson beside = OrderedJson::object();
    for (const auto& [key, value] : schema.items())
      if (key != keyword && use_of(key) != KeywordUse::annotation) beside[key] = value;
    std::vector<Expr> alternatives;
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string at = below(below(path, keyword), std::to_string(i));
      if (beside.empty()) {
        alternatives.push_back(value(given[i], at, nesting + 1));
      } else {
        OrderedJson whole = document_.both(beside, document_.flat(given[i], at, nesting + 1), at);
        alternatives.push_back(value(whole, at, nesting + 1));
      }
    }
    return builder_.choice(std::move(alternatives));
  }

  // Those of the listed values that have one of the schema's types.
  Expr listed(const OrderedJson& schema, const OrderedJson& list, const std::string& path) {
    if (!list.is_array()) document_.refuse(path, "enum must be a list of values");
    for (const auto& [key, value] : schema.items()) {
      const bool known =
          key == "enum" || key == "const" || key == "type" || use_of(key) == KeywordUse::annotation;
      if (!known) document_.refuse(path, "{} beside enum or const is not supported", key);
    }
    std::vector<std::string> types;
    if (schema.contains("type")) types = types_of(schema, path);
    std::vector<std::string> texts;
    std::vector<Expr> alternatives;
    for (const OrderedJson& value : list) {
      const bool right = std::ranges::any_of(
          types, [&](const std::string& type) { return is_of_type(value, type); });
      if (!types.empty() && !right) continue;
      if (schema.contains("const") && value != schema.at("const")) continue;
      if (value.is_structured()) {
        alternatives.push_back(parts_.literal(value));
      } else {
        texts.push_back(value.dump());
      }
    }
    if (!texts.empty()) alternatives.push_back(builder_.one_of(std::move(texts)));
    if (alternatives.empty()) document_.refuse(path, "no value is valid");
    return builder_.choice(std::move(alternatives));
  }

  // Those that are named, or those of the keywords; none: any.
  std::vector<std::string> types_of(const OrderedJson& schema, const std::string& path) const {
    constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                           "integer", "boolean", "null"};
    std::vector<std::string> types;
    if (auto named = schema.find("type"); named != schema.end()) {
      for (const OrderedJson& type : named->is_array() ? *named : OrderedJson::array({*named})) {
        const bool known =
            type.is_string() &&
            std::ranges::find(kTypes, type.get_ref<const std::string&>()) != std::end(kTypes);
        if (!known)
          document_.refuse(path,
                           "type must be object, array, string, number, integer, "
                           "boolean or null, or a list of these");
        types.push_back(type.get<std::string>());
      }
      if (types.empty()) document_.refuse(path, "type names none");
      return types;
    }
    constexpr std::pair<KeywordUse, const char*> kImplied[] = {{KeywordUse::object, "object"},
                                                               {KeywordUse::array, "array"},
                                                               {KeywordUse::string, "string"},
                                                               {KeywordUse::number, "number"}};
    for (auto [use, type] : kImplied) {
      bool meant = false;
      for (const auto& [key, value] : schema.items()) meant = meant || use_of(key) == use;
      if (meant) types.emplace_back(type);
    }
    return types;
  }

  Expr of_type(const OrderedJson& schema, const std::string& type, const std::string& path,
               int nesting) {
    if (type == "object") return objects_.object(schema, path, nesting);
    if (type == "array") return objects_.array(schema, path, nesting);
    if (type == "string") return string(schema, path);
    if (type == "number" || type == "integer") return number(schema, type == "integer", path);
    if (type == "null") return builder_.text("null");
    return builder_.one_of({"true", "false"});
  }

  Expr string(const OrderedJson& schema, const std::string& path) {
    const uint32_t low = document_.count(schema, "minLength", 0, path);
    const uint32_t high = document_.count(schema, "maxLength", kUnlimited, path);
    if (low > high) document_.refuse(path, "minLength is more than maxLength");
    const bool limited = low > 0 || high != kUnlimited;
    const bool pattern = schema.contains("pattern");
    const std::string_view format = format_of(schema, path);
    if (int{pattern} + int{!format.empty()} + int{limited} > 1)
      document_.refuse(path,
                       "pattern, format and lengths of one string together are not supported");
    if (!pattern && format.empty() && !limited) return parts_.string();
    Expr inside = limited   ? builder_.repeat(parts_.character(), low, high)
                  : pattern ? pattern_of(schema, path)
                            : regex(builder_, format, Alphabet::json_string, Match::whole);
    return builder_.sequence({builder_.text("\""), inside, builder_.text("\"")});
  }

  std::string_view format_of(const OrderedJson& schema, const std::string& path) const {
    auto found = schema.find("format");
    if (found == schema.end()) return {};
    const std::string name = found->is_string() ? found->get<std::string>() : found->dump();
    if (name == "password") return {};  // how it is to be shown
    const std::string_view pattern = format_pattern(name);
    if (pattern.empty()) document_.refuse(path, "format {:?} is not supported", name);
    return pattern;
  }

  Expr pattern_of(const OrderedJson& schema, const std::string& path) {
    const OrderedJson& pattern = schema.at("pattern");
    if (!pattern.is_string()) document_.refuse(path, "pattern must be a string");
    try {
      return regex(builder_, pattern.get_ref<const std::string&>(), Alphabet::json_string,
                   Match::within);
    } catch (const Error& e) {
      std::string_view why = e.what();
      if (why.starts_with(builder_.where())) why.remove_prefix(builder_.where().size() + 2);
      document_.refuse(path, "pattern: {}", why);
    }
  }

  Expr number(const OrderedJson& schema, bool integer, const std::string& path) {
    if (auto multiple = schema.find("multipleOf"); multiple != schema.end()) {
      if (!integer || *multiple != OrderedJson(1))
        document_.refuse(path, "multipleOf is supported as 1 of integers only");
    }
    NumberRange range;
    bound(schema, {"minimum", false, true}, integer, path, range);
    bound(schema, {"exclusiveMinimum", true, true}, integer, path, range);
    bound(schema, {"maximum", false, false}, integer, path, range);
    bound(schema, {"exclusiveMaximum", true, false}, integer, path, range);
    const bool open = range.without_low || range.without_high;
    if (range.low && range.high && (*range.low > *range.high || (open && range.low == range.high)))
      document_.refuse(path, "no number lies between the bounds");
    if (!range.low && !range.high) return integer ? parts_.integer() : parts_.number();
    return integer ? parts_.integer(range) : parts_.number(range);
  }

  struct Bound {
    const char* keyword;
    bool exclusive;
    bool low;
  };
  // The tighter one of two counts.
  void bound(const OrderedJson& schema, const Bound& b, bool integer, const std::string& path,
             NumberRange& range) const {
    auto found = schema.find(b.keyword);
    if (found == schema.end()) return;
    if (!found->is_number()) document_.refuse(path, "{} must be a number", b.keyword);
    constexpr double kMost = 9.2e18;
    const double given = found->get<double>();
    const bool fits = found->is_number_unsigned()
                          ? found->get<uint64_t>() <= uint64_t{INT64_MAX}
                          : found->is_number_integer() || std::abs(given) <= kMost;
    if (!fits) document_.refuse(path, "{} is beyond integers of 64 bits", b.keyword);
    const bool whole = given == std::floor(given);
    if (!whole && !integer)
      document_.refuse(path, "{} of a number is supported where it is an integer", b.keyword);
    const double inside = b.low ? std::ceil(given) : std::floor(given);
    const int64_t value =
        found->is_number_integer() ? found->get<int64_t>() : static_cast<int64_t>(inside);
    std::optional<int64_t>& bound = b.low ? range.low : range.high;
    bool& without = b.low ? range.without_low : range.without_high;
    const bool exclusive = b.exclusive && whole;
    const bool tighter = !bound || (b.low ? value > *bound : value < *bound);
    if (tighter) without = exclusive;
    if (bound == value) without = without || exclusive;
    if (tighter) bound = value;
  }

  GrammarBuilder& builder_;
  JsonParts parts_;
  SchemaDocument document_;
  SchemaObjects objects_;
  std::map<const OrderedJson*, RuleId> rules_;  // of what is referred to
  std::vector<Waiting> waiting_;
};

}  // namespace

OrderedJson parse_schema(std::string_view text, std::string_view where) {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorKind::refused, "{}: the schema has {} bytes, but {} is the most", where, text.size(),
         kMaxTextBytes);
  }
  const Json json = parse_json(text, where);
  refuse_repeated_keys(text, json, where);
  if (has_large_object(json)) {
    fail(ErrorKind::refused, "{}: an object of the schema has more than {} members", where,
         kMaxMembers);
  }
  OrderedJson schema = OrderedJson::parse(text.begin(), text.end(), nullptr, false);
  if (schema.is_discarded()) fail(ErrorKind::refused, "{}: a number of the schema is none", where);
  return schema;
}

bool has_large_object(const Json& json) {
  if (!json.is_structured()) return false;
  if (json.is_object() && json.size() > kMaxMembers) return true;
  return std::ranges::any_of(json, has_large_object);
}

Expr json_schema(GrammarBuilder& builder, const OrderedJson& schema, const OrderedJson& root,
                 int64_t& steps) {
  return SchemaCompiler(builder, root, steps).compile(schema);
}

}  // namespace sluice::grammar
