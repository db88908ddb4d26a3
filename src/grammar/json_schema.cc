#include "src/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/schema_check.h"
#include "src/grammar/schema_keywords.h"
#include "src/grammar/schema_objects.h"
#include "src/grammar/schema_scalars.h"

namespace sluice::grammar {
namespace {

// All but integers, which are numbers.
constexpr std::string_view kTypes[] = {"object", "array", "string", "number", "boolean", "null"};

class SchemaCompiler : public SchemaValues {
 public:
  SchemaCompiler(GrammarBuilder& builder, const OrderedJson& root, int64_t& steps,
                 std::optional<std::string_view> end)
      : builder_(builder),
        end_(end),
        parts_(builder),
        document_(root, builder.where(), steps),
        checker_(document_, builder.where()),
        scalars_(builder, parts_, document_),
        objects_(builder, parts_, document_, scalars_, checker_, *this) {}

  Expr compile(const OrderedJson& whole) {
    Expr root = value(whole, "", 0);
    // References are followed one after another, so that no chain of them is too long.
    while (!waiting_.empty()) {
      auto [rule, schema, path] = std::move(waiting_.back());
      waiting_.pop_back();
      builder_.define(rule, value(*schema, path, 0));
    }
    return root;
  }

  Expr value(const OrderedJson& schema, const std::string& path, int nesting) override {
    document_.count_step(path, nesting);
    if (schema == OrderedJson(true)) return any_value(path);
    if (schema == OrderedJson(false)) document_.no_value(path, "false is valid for no value");
    document_.check_object(schema, path);
    return plain_value(document_.plain(schema, path, nesting), path, nesting);
  }

 private:
  struct Waiting {
    RuleId rule;
    const OrderedJson* schema;
    std::string path;
  };

  Expr any_value(const std::string& path) {
    return end_ ? scalars_.bare_string(OrderedJson::object(), *end_, path) : parts_.value();
  }

  Expr plain_value(const OrderedJson& schema, const std::string& path, int nesting) {
    if (schema.contains("$ref") && is_only_ref(schema)) return reference(schema, path);
    if (schema.contains("$ref") || schema.contains("allOf"))
      return value(document_.flat(schema, path, nesting + 1), path, nesting + 1);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (schema.contains(keyword)) return any_of(schema, keyword, path, nesting);
    if (schema.contains("const") || schema.contains("enum")) return listed(schema, path, nesting);
    const std::vector<std::string> types = types_of(schema, path);
    if (types.empty()) return any_value(path);
    return some_of(types,
                   [&](const std::string& type) { return of_type(schema, type, path, nesting); });
  }

  // Keeps the parts that are valid for some values; throws the first one's Error where none is.
  template <class List, class Make>
  Expr some_of(const List& list, Make make) {
    std::vector<Expr> all;
    std::optional<NoValue> none;
    for (const auto& one : list) {
      try {
        all.push_back(make(one));
      } catch (const NoValue& e) {
        if (!none) none = e;
      }
    }
    if (all.empty()) throw NoValue(*none);
    return builder_.choice(std::move(all));
  }

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
    std::vector<size_t> numbers(given.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return some_of(numbers, [&](size_t i) {
      const std::string at = below(below(path, keyword), std::to_string(i));
      if (beside.empty()) return value(given[i], at, nesting + 1);
      OrderedJson whole = document_.both(beside, document_.flat(given[i], at, nesting + 1), at);
      return value(whole, at, nesting + 1);
    });
  }

  // Keeps the listed values that are valid by everything else in the schema.
  Expr listed(OrderedJson schema, const std::string& path, int nesting) {
    OrderedJson list = OrderedJson::array({schema.value("const", OrderedJson())});
    if (schema.contains("enum")) list = schema.at("enum");
    if (!list.is_array()) document_.refuse(path, "enum must be a list of values");
    schema.erase("enum");
    // Then its types say all.
    const bool plain = std::ranges::all_of(schema.items(), [](const auto& member) {
      return member.key() == "type" || use_of(member.key()) == KeywordUse::annotation;
    });
    std::vector<std::string> types;
    if (schema.contains("type")) types = types_of(schema, path);
    auto is_valid = [&](const OrderedJson& value) {
      if (!plain) return checker_.valid(value, schema, path, nesting + 1);
      return types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
               return is_of_type(value, type);
             });
    };
    std::vector<std::string> texts;
    std::vector<Expr> alternatives;
    for (const OrderedJson& value : list) {
      if (!is_valid(value)) continue;
      if (value.is_structured()) {
        alternatives.push_back(parts_.literal(value));
      } else if (end_ && value.is_string()) {
        texts.push_back(value.get<std::string>());
      } else {
        texts.push_back(value.dump());
      }
    }
    if (!texts.empty()) alternatives.push_back(builder_.one_of(std::move(texts)));
    if (alternatives.empty()) document_.no_value(path, "no value is valid");
    return builder_.choice(std::move(alternatives));
  }

  // Returns the named types, or those of the keywords; none: any.
  std::vector<std::string> types_of(const OrderedJson& schema, const std::string& path) const {
    std::vector<std::string> types;
    if (auto named = schema.find("type"); named != schema.end()) {
      for (const OrderedJson& type : named->is_array() ? *named : OrderedJson::array({*named})) {
        const bool known =
            type.is_string() &&
            (type == "integer" ||
             std::ranges::find(kTypes, type.get_ref<const std::string&>()) != std::end(kTypes));
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
    if (types.empty() && schema.contains(kExcluded))
      types.assign(std::begin(kTypes), std::end(kTypes));
    return types;
  }

  Expr of_type(const OrderedJson& schema, const std::string& type, const std::string& path,
               int nesting) {
    if (type == "string")
      return end_ ? scalars_.bare_string(schema, *end_, path) : scalars_.string(schema, path);
    if (end_ && type != "null")
      document_.no_value(path, "{} is no type of what is written between tags", type);
    if (type == "number" || type == "integer")
      return scalars_.number(schema, type == "integer", path);
    const OrderedJson excluded = schema.value(kExcluded, OrderedJson::array());
    if (type == "object" || type == "array") {
      for (const OrderedJson& value : excluded)
        if (is_of_type(value, type))
          document_.refuse(path, "not: a single {} is not supported", type);
      return type == "object" ? objects_.object(schema, path, nesting)
                              : objects_.array(schema, path, nesting);
    }
    std::vector<std::string> texts;
    const OrderedJson all =
        type == "null" ? OrderedJson::array({nullptr}) : OrderedJson::array({true, false});
    for (const OrderedJson& value : all)
      if (std::ranges::find(excluded, value) == excluded.end()) texts.push_back(value.dump());
    if (texts.empty()) document_.no_value(path, "no value is valid");
    return builder_.one_of(std::move(texts));
  }

  GrammarBuilder& builder_;
  std::optional<std::string_view> end_;  // of strings as they are
  JsonParts parts_;
  SchemaDocument document_;
  SchemaChecker checker_;
  SchemaScalars scalars_;
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
  return take_schema(parse_ordered(text, where), where);
}

OrderedJson take_schema(OrderedJson schema, std::string_view where) {
  if (has_large_object(schema)) {
    fail(ErrorKind::refused, "{}: an object of the schema has more than {} members", where,
         kMaxMembers);
  }
  schema = round_integers(std::move(schema));
  if (!is_finite(schema)) fail(ErrorKind::refused, "{}: a number of the schema is none", where);
  return schema;
}

bool has_large_object(const OrderedJson& json) {
  if (!json.is_structured()) return false;
  if (json.is_object() && json.size() > kMaxMembers) return true;
  return std::ranges::any_of(json, has_large_object);
}

bool is_finite(const OrderedJson& json) {
  if (json.is_structured()) return std::ranges::all_of(json, is_finite);
  return !json.is_number_float() || std::isfinite(json.get<double>());
}

Expr json_schema(GrammarBuilder& builder, const OrderedJson& schema, const OrderedJson& root,
                 int64_t& steps, std::optional<std::string_view> end) {
  return SchemaCompiler(builder, root, steps, end).compile(schema);
}

}  // namespace sluice::grammar
