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

std::u32string code_points(std::string_view text) {
  std::u32string all;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    all += c.code_point;
    at += static_cast<size_t>(c.bytes);
  }
  return all;
}

OrderedJson names_of(const OrderedJson& schema) {
  auto required = schema.find("required");
  return required == schema.end() ? OrderedJson::array() : *required;
}

}  // namespace

Expr SchemaObjects::object(const OrderedJson& schema, const std::string& path, int nesting) {
  std::vector<Member> declared = members(schema, path, nesting);
  std::optional<Expr> more = additional(schema, path, nesting);
  const uint32_t low = document_.count(schema, "minProperties", 0, path);
  const uint32_t high = document_.count(schema, "maxProperties", kUnlimited, path);
  if (low > high) document_.refuse(path, "minProperties is more than maxProperties");
  if (declared.empty()) {
    if (!more || high == 0) {
      if (low > 0) document_.refuse(path, "minProperties: no property is allowed");
      return builder_.sequence({builder_.text("{"), parts_.space(), builder_.text("}")});
    }
    return parts_.in_brackets('{', parts_.list(*more, std::max(low, 1U), high), low == 0, '}');
  }
  const auto required = std::ranges::count_if(declared, &Member::required);
  if (low > required)
    document_.refuse(path,
                     "minProperties beside properties is supported up to the number of "
                     "those that are required");
  if (high != kUnlimited && (more || high < declared.size()))
    document_.refuse(path, "maxProperties beside properties is not supported");
  return parts_.in_brackets('{', ordered(declared, more), required == 0, '}');
}

// Those that are required and not declared come behind the others.
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
  std::vector<Member> all;
  auto add = [&](const std::string& name, const OrderedJson& value, const std::string& at,
                 bool needed) {
    Expr member = builder_.sequence({parts_.quoted(name), builder_.text(":"), parts_.space(),
                                     values_.value(value, at, nesting + 1)});
    all.push_back({member, needed});
  };
  for (const auto& [name, value] : properties.items()) {
    const bool needed = left.erase(name) > 0;
    if (!needed && value == OrderedJson(false)) continue;  // may not be there
    add(name, value, below(below(path, "properties"), name), needed);
  }
  for (const OrderedJson& given : required) {
    const auto& name = given.get_ref<const std::string&>();
    if (left.erase(name) == 0) continue;
    const OrderedJson value = schema.value("additionalProperties", OrderedJson(true));
    if (value == OrderedJson(false))
      document_.refuse(path, "required: {:?} is not one of the properties", name);
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
  auto given = schema.find("additionalProperties");
  if (given == schema.end() && !declared.empty()) return std::nullopt;
  if (given != schema.end() && *given == OrderedJson(false)) return std::nullopt;
  const OrderedJson value = given == schema.end() ? OrderedJson(true) : *given;
  Expr key = declared.empty() ? parts_.string() : other_key(declared, path);
  const std::string at = below(path, "additionalProperties");
  Expr member = builder_.sequence(
      {key, builder_.text(":"), parts_.space(), values_.value(value, at, nesting + 1)});
  return builder_.rule_of(at, member);
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

// As many of prefixItems as there may be elements, then any number by `items`.
Expr SchemaObjects::array(const OrderedJson& schema, const std::string& path, int nesting) {
  const uint32_t low = document_.count(schema, "minItems", 0, path);
  const uint32_t high = document_.count(schema, "maxItems", kUnlimited, path);
  if (low > high) document_.refuse(path, "minItems is more than maxItems");
  const OrderedJson prefix = schema.value("prefixItems", OrderedJson::array());
  if (!prefix.is_array()) document_.refuse(path, "prefixItems must be a list of schemas");
  std::vector<Expr> fixed;
  for (size_t i = 0; i < std::min<size_t>(prefix.size(), high); ++i) {
    if (i > 0) fixed.push_back(parts_.comma());
    const std::string at = below(below(path, "prefixItems"), std::to_string(i));
    fixed.push_back(values_.value(prefix[i], at, nesting + 1));
  }
  const auto there = static_cast<uint32_t>(std::min<size_t>(prefix.size(), high));
  const OrderedJson items = schema.value("items", OrderedJson(prefix.empty()));
  const bool more = items != OrderedJson(false) && there < high;
  if (!more && low > there)
    document_.refuse(path, "minItems is more than the elements that prefixItems and items allow");
  if (!more && there == 0)
    return builder_.sequence({builder_.text("["), parts_.space(), builder_.text("]")});
  if (!more) return parts_.in_brackets('[', builder_.sequence(std::move(fixed)), false, ']');
  Expr element = builder_.rule_of(below(path, "items"),
                                  values_.value(items, below(path, "items"), nesting + 1));
  if (there == 0) {
    return parts_.in_brackets('[', parts_.list(element, std::max(low, 1U), high), low == 0, ']');
  }
  const uint32_t most = high == kUnlimited ? kUnlimited : high - there;
  fixed.push_back(builder_.repeat(builder_.sequence({parts_.comma(), element}),
                                  low > there ? low - there : 0, most));
  return parts_.in_brackets('[', builder_.sequence(std::move(fixed)), false, ']');
}

}  // namespace sluice::grammar
