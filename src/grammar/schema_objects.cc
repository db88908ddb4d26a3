#include "src/grammar/schema_objects.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "src/text/utf8.h"

namespace sluice::grammar {
namespace {

constexpr size_t kLongestName = 256;  // of those that other keys must differ from

bool is_plain(char32_t c) { return c >= 0x20 && c != '"' && c != '\\'; }

OrderedJson names_of(const OrderedJson& schema) {
  auto required = schema.find("required");
  return required == schema.end() ? OrderedJson::array() : *required;
}

}  // namespace

Expr SchemaObjects::object(const OrderedJson& given, const std::string& path, int nesting) {
  const OrderedJson schema = with_names(given, path, nesting);
  const std::vector<Member> declared = members(schema, path, nesting);
  const std::optional<Expr> more = additional(schema, path, nesting);
  const uint32_t low = document_.count(schema, "minProperties", 0, path);
  const uint32_t high = document_.count(schema, "maxProperties", kUnlimited, path);
  if (low > high) document_.no_value(path, "minProperties is more than maxProperties");
  const auto required = std::ranges::count_if(declared, &Member::required);
  const bool free = low <= required && (high == kUnlimited || (!more && high >= declared.size()));
  std::optional<Expr> inside;
  if (!free) {
    inside = counted(declared, more, {std::max(low, 1U), high}, path);
  } else if (more || !declared.empty()) {
    inside = ordered(declared, more);
  }
  const bool or_none = low == 0 && required == 0;
  if (inside) return parts_.in_brackets('{', *inside, or_none, '}');
  if (!or_none) document_.no_value(path, "no object has so many properties");
  return builder_.sequence({builder_.text("{"), parts_.space(), builder_.text("}")});
}

// With propertyNames that lists names as properties.
OrderedJson SchemaObjects::with_names(const OrderedJson& given, const std::string& path,
                                      int nesting) {
  if (!given.contains("propertyNames")) return given;
  OrderedJson schema = given;
  const std::string at = below(path, "propertyNames");
  const OrderedJson names = document_.flat(given.at("propertyNames"), at, nesting + 1);
  if (names.empty() || (names.size() == 1 && names.value("type", OrderedJson()) == "string")) {
    schema.erase("propertyNames");
    return schema;
  }
  schema["propertyNames"] = names;
  if (!names.contains("enum") && !names.contains("const")) return schema;
  const OrderedJson list =
      names.contains("enum") ? names.at("enum") : OrderedJson::array({names.at("const")});
  if (!list.is_array()) document_.refuse(at, "enum must be a list of values");
  OrderedJson properties = OrderedJson::object();
  const OrderedJson declared = schema.value("properties", OrderedJson::object());
  if (!declared.is_object()) document_.refuse(path, "properties must be an object");
  for (const auto& [name, value] : declared.items())
    if (checker_.valid(OrderedJson(name), names, at, nesting + 1)) properties[name] = value;
  for (const OrderedJson& name : list) {
    if (!name.is_string() || !checker_.valid(name, names, at, nesting + 1)) continue;
    const auto& text = name.get_ref<const std::string&>();
    if (!properties.contains(text)) properties[text] = value_of(schema, text, path);
  }
  for (const OrderedJson& name : names_of(schema))
    if (name.is_string() && !properties.contains(name.get_ref<const std::string&>()))
      document_.no_value(path, "required: {:?} is none of propertyNames", name.get<std::string>());
  schema["properties"] = std::move(properties);
  schema.erase("propertyNames");
  schema.erase("patternProperties");
  schema["additionalProperties"] = false;
  return schema;
}

// Returns the schema of a member that is not declared.
OrderedJson SchemaObjects::value_of(const OrderedJson& schema, const std::string& name,
                                    const std::string& path) {
  OrderedJson all = OrderedJson::array();
  const OrderedJson patterns = schema.value("patternProperties", OrderedJson::object());
  for (const auto& [pattern, value] : patterns.items())
    if (checker_.matches(name, pattern, Match::within, path)) all.push_back(value);
  if (all.size() == 1) return all.front();
  if (!all.empty()) return OrderedJson({{"allOf", all}});
  if (schema.contains("additionalProperties")) return schema.at("additionalProperties");
  return schema.value("unevaluatedProperties", OrderedJson(true));
}

// Required members that are not declared come behind the others.
std::vector<SchemaObjects::Member> SchemaObjects::members(const OrderedJson& schema,
                                                          const std::string& path, int nesting) {
  const OrderedJson properties = schema.value("properties", OrderedJson::object());
  if (!properties.is_object()) document_.refuse(path, "properties must be an object");
  const OrderedJson required = names_of(schema);
  const bool names = required.is_array() && std::ranges::all_of(required, [](const OrderedJson& n) {
                       return n.is_string();
                     });
  if (!names) document_.refuse(path, "required must be a list of names");
  std::set<std::string_view> left;  // of those that are required
  for (const OrderedJson& name : required) left.insert(name.get_ref<const std::string&>());
  const OrderedJson patterns = schema.value("patternProperties", OrderedJson::object());
  std::vector<Member> all;
  auto add = [&](const std::string& name, const OrderedJson& value, const std::string& at,
                 bool needed) {
    if (!needed && value == OrderedJson(false)) return;  // may not be there
    try {
      all.push_back({builder_.sequence({parts_.quoted(name), builder_.text(":"), parts_.space(),
                                        values_.value(value, at, nesting + 1)}),
                     needed});
    } catch (const NoValue&) {
      if (needed) throw;
    }
  };
  for (const auto& [name, value] : properties.items()) {
    OrderedJson whole = value;
    for (const auto& [pattern, inner] : patterns.items())
      if (checker_.matches(name, pattern, Match::within, path))
        whole = OrderedJson({{"allOf", OrderedJson::array({whole, inner})}});
    add(name, whole, below(below(path, "properties"), name), left.erase(name) > 0);
  }
  for (const OrderedJson& given : required) {
    const auto& name = given.get_ref<const std::string&>();
    if (left.erase(name) == 0) continue;
    const OrderedJson value = value_of(schema, name, path);
    if (value == OrderedJson(false))
      document_.no_value(path, "required: {:?} is not one of the properties", name);
    if (schema.contains("propertyNames") &&
        !checker_.valid(given, schema.at("propertyNames"), path, nesting + 1))
      document_.no_value(path, "required: {:?} is none of propertyNames", name);
    add(name, value, below(path, "additionalProperties"), true);
  }
  return all;
}

// A member that is not declared.
std::optional<Expr> SchemaObjects::additional(const OrderedJson& schema, const std::string& path,
                                              int nesting) {
  std::vector<std::string> declared;
  const OrderedJson properties = schema.value("properties", OrderedJson::object());
  for (const auto& [name, value] : properties.items()) declared.push_back(name);
  for (const OrderedJson& name : names_of(schema)) declared.push_back(name.get<std::string>());
  if (schema.contains("patternProperties") || schema.contains("propertyNames"))
    return patterned(schema, declared, path, nesting);
  const bool additional = schema.contains("additionalProperties");
  const char* keyword = additional ? "additionalProperties" : "unevaluatedProperties";
  const bool open = !schema.contains(keyword);
  if (open && !declared.empty()) return std::nullopt;
  const OrderedJson value = open ? OrderedJson(true) : schema.at(keyword);
  if (value == OrderedJson(false)) return std::nullopt;
  Expr key = declared.empty() ? parts_.string() : other_key(declared, path);
  const std::string at = below(path, keyword);
  try {
    Expr member = builder_.sequence(
        {key, builder_.text(":"), parts_.space(), values_.value(value, at, nesting + 1)});
    return builder_.rule_of(at, member);
  } catch (const NoValue&) {
    return std::nullopt;
  }
}

// None where no key or no value can be.
std::optional<Expr> SchemaObjects::member(Languages& languages, Term key, const OrderedJson& value,
                                          const std::string& path, int nesting) {
  if (value == OrderedJson(false)) return std::nullopt;
  try {
    const Expr name = scalars_.quoted(languages, key, path);
    return builder_.rule_of(path, builder_.sequence({name, builder_.text(":"), parts_.space(),
                                                     values_.value(value, path, nesting + 1)}));
  } catch (const NoValue&) {
    return std::nullopt;
  }
}

// Keys by the patterns that they match: each set of them is a kind of its own.
std::optional<Expr> SchemaObjects::patterned(const OrderedJson& schema,
                                             const std::vector<std::string>& declared,
                                             const std::string& path, int nesting) {
  constexpr size_t kMostPatterns = 6;
  const OrderedJson patterns = schema.value("patternProperties", OrderedJson::object());
  if (!patterns.is_object()) document_.refuse(path, "patternProperties must be an object");
  if (patterns.size() > kMostPatterns)
    document_.refuse(path, "patternProperties: more than {} patterns are not supported",
                     kMostPatterns);
  Languages languages(builder_.where());
  std::vector<Term> keys;
  for (const std::string& name : declared) keys.push_back(languages.without(languages.text(name)));
  if (schema.contains("propertyNames")) {
    const OrderedJson& names = schema.at("propertyNames");
    const bool refined = names.contains("anyOf") || names.contains("oneOf");
    if (refined) document_.refuse(path, "propertyNames with anyOf or oneOf is not supported");
    keys.push_back(scalars_.string_term(languages, names, below(path, "propertyNames")));
  }
  const bool closed = !declared.empty() || !patterns.empty();
  OrderedJson others = schema.value("unevaluatedProperties", OrderedJson(!closed));
  if (schema.contains("additionalProperties")) others = schema.at("additionalProperties");
  std::vector<Expr> all;
  for (size_t chosen = 0; chosen < size_t{1} << patterns.size(); ++chosen) {
    std::vector<Term> terms = keys;
    OrderedJson values = OrderedJson::array();
    size_t bit = 0;
    for (const auto& [pattern, value] : patterns.items()) {
      const Term term = scalars_.pattern_term(languages, OrderedJson(pattern), path);
      const bool in = (chosen >> bit++ & 1) != 0;
      terms.push_back(in ? term : languages.without(term));
      if (in) values.push_back(value);
    }
    OrderedJson value = others;
    if (values.size() == 1) value = values.front();
    if (values.size() > 1) value = OrderedJson({{"allOf", values}});
    const std::string at = below(path, chosen == 0 ? "additionalProperties" : "patternProperties");
    if (auto made = member(languages, languages.both(terms), value, at, nesting))
      all.push_back(*made);
  }
  if (all.empty()) return std::nullopt;
  return builder_.choice(std::move(all));
}

Expr SchemaObjects::other_key(const std::vector<std::string>& declared, const std::string& path) {
  std::vector<std::u32string> names;
  for (const std::string& name : declared) {
    std::u32string characters = code_points(name);
    if (characters.size() > kLongestName) {
      document_.refuse(path, "additionalProperties beside a property of more than {} characters",
                       kLongestName);
    }
    if (std::ranges::all_of(characters, is_plain)) names.push_back(std::move(characters));
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  Expr plain = builder_.characters({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}});
  Expr rest = builder_.rule_of("key", builder_.any_number(plain));
  Expr key = other_key_from(names, 0, names.size(), 0, rest);
  return builder_.sequence({builder_.text("\""), key, builder_.text("\"")});
}

// Behind `depth` characters that the names [begin, end) share: what makes none of them.
Expr SchemaObjects::other_key_from(const std::vector<std::u32string>& names, size_t begin,
                                   size_t end, size_t depth, Expr rest) {
  std::vector<Expr> alternatives;
  const bool is_name = begin < end && names[begin].size() == depth;
  if (is_name) {
    ++begin;
  } else {
    alternatives.push_back(builder_.text({}));
  }
  CharRanges taken{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  while (begin < end) {
    const char32_t c = names[begin][depth];
    size_t same = begin + 1;
    while (same < end && names[same][depth] == c) ++same;
    std::string character;
    append_utf8(c, character);
    alternatives.push_back(builder_.sequence(
        {builder_.text(character), other_key_from(names, begin, same, depth + 1, rest)}));
    taken.push_back({c, c});
    begin = same;
  }
  alternatives.push_back(builder_.sequence({builder_.characters(complement(taken)), rest}));
  return builder_.choice(std::move(alternatives));
}

// Members in their order, with commas between those that are there: one or more. From the last one
// to the first: which may be the next, and whether one has to be.
Expr SchemaObjects::ordered(const std::vector<Member>& members, std::optional<Expr> more) {
  std::optional<Expr> next;  // none: nothing can follow
  if (more) next = builder_.rule_of("members", parts_.list(*more, 1, kUnlimited));
  bool needed = false;
  for (size_t i = members.size(); i-- > 0;) {
    Expr member = members[i].text;
    if (next) {
      Expr others = builder_.sequence({parts_.comma(), *next});
      member = builder_.sequence({member, needed ? others : builder_.optional(others)});
    }
    if (next && !members[i].required) member = builder_.choice({member, *next});
    next = builder_.rule_of("members", member);
    needed = needed || members[i].required;
  }
  return *next;
}

// Does what ordered() does, with so many members in all; none: an object cannot have so many.
// Builds what may come for each member and count of those before it.
std::optional<Expr> SchemaObjects::counted(const std::vector<Member>& members,
                                           std::optional<Expr> more, Counts counts,
                                           const std::string& path) {
  constexpr size_t kMost = 20'000;
  const uint32_t cap = std::min<uint32_t>(counts.high == kUnlimited ? counts.low : counts.high,
                                          static_cast<uint32_t>(members.size()) + counts.low);
  if (members.size() * (size_t{cap} + 1) > kMost)
    document_.refuse(path, "a count beside so many properties or values is not supported");
  std::vector<std::optional<Expr>> next(size_t{cap} + 1);
  for (uint32_t c = 0; more && c <= cap; ++c) {
    const uint32_t most = counts.high == kUnlimited ? kUnlimited : counts.high - c;
    const uint32_t least = counts.low > c ? counts.low - c : 1;
    if (most >= least && most > 0)
      next[c] = builder_.rule_of("members", parts_.list(*more, least, most));
  }
  bool needed = false;
  for (size_t i = members.size(); i-- > 0;) {
    std::vector<std::optional<Expr>> here(size_t{cap} + 1);
    for (uint32_t c = 0; c <= cap; ++c) {
      const bool room = counts.high == kUnlimited || c < counts.high;
      const uint32_t then = std::min(c + 1, cap);
      std::optional<Expr> taken;
      const bool ends = !needed && c + 1 >= counts.low;
      if (room && next[then]) {
        const Expr others = builder_.sequence({parts_.comma(), *next[then]});
        taken = builder_.sequence({members[i].text, ends ? builder_.optional(others) : others});
      } else if (room && ends) {
        taken = members[i].text;
      }
      if (!members[i].required && next[c])
        taken = taken ? builder_.choice({*taken, *next[c]}) : *next[c];
      if (taken) here[c] = builder_.rule_of("members", *taken);
    }
    next = std::move(here);
    needed = needed || members[i].required;
  }
  return next[0];
}

}  // namespace sluice::grammar
