// Arrays of JSON schemas.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "src/grammar/schema_objects.h"

namespace sluice::grammar {
namespace {

// Rules for the elements of an array, by the count of all and of those that were found to have what
// `contains` asks for. Counts beyond which nothing changes are one state.
class ContainingElements {
 public:
  ContainingElements(Counts all, Counts found)
      : all_(all), found_(found), low_(std::max(all.low, found.low)) {
    most_all_ = all.high == kUnlimited ? std::max(low_, 1U) : all.high;
    most_found_ = found.high == kUnlimited ? found.low : found.high;
  }

  // Returns whether the counts go together, and are few.
  bool is_supported() const {
    constexpr size_t kMost = 20'000;
    return low_ <= all_.high && found_.low <= found_.high && most_all_ <= kMost &&
           most_found_ <= kMost && (size_t{most_all_} + 1) * (size_t{most_found_} + 1) <= kMost;
  }

  // `hit`: an element that has what is asked for; `other`: any other one that may be; none: there
  // is none. Returns the rule of all elements; nullopt: no array has what is asked for.
  std::optional<RuleId> build(GrammarBuilder& builder, Expr comma, std::optional<Expr> hit,
                              std::optional<Expr> other) {
    rules_.resize((size_t{most_all_} + 1) * (size_t{most_found_} + 1));
    for (bool changed = true; changed;) {
      changed = false;
      each([&](const State& s) {
        const bool lives = s.ends || (s.may_hit && hit && rule(s.all + 1, s.found + 1)) ||
                           (s.room && other && rule(s.all + 1, s.found));
        if (!lives || rule(s.all, s.found)) return;
        rule(s.all, s.found) = builder.rule("elements");
        changed = true;
      });
    }
    each([&](const State& s) {
      if (!rule(s.all, s.found)) return;
      std::vector<Expr> ways;
      if (s.ends) ways.push_back(builder.text({}));
      auto add = [&](std::optional<Expr> one, std::optional<RuleId> then) {
        if (!one || !then) return;
        std::vector<Expr> parts{*one, builder.call(*then)};
        if (s.all > 0) parts.insert(parts.begin(), comma);
        ways.push_back(builder.sequence(std::move(parts)));
      };
      if (s.may_hit) add(hit, rule(s.all + 1, s.found + 1));
      if (s.room) add(other, rule(s.all + 1, s.found));
      builder.define(*rule(s.all, s.found), builder.choice(std::move(ways)));
    });
    return rule(0, 0);
  }

 private:
  struct State {
    uint32_t all = 0, found = 0;  // elements that have come
    bool ends = false;            // the array may end here
    bool room = false;            // there may be another element
    bool may_hit = false;         // there may be another that has what is asked for
  };

  // Visits the states, the last ones first.
  template <class Visit>
  void each(Visit visit) const {
    for (uint32_t all = most_all_ + 1; all-- > 0;) {
      for (uint32_t found = most_found_ + 1; found-- > 0;) {
        const bool room = all_.high == kUnlimited || all < all_.high;
        const bool more = found_.high == kUnlimited || found < found_.high;
        visit(State{all, found, all >= all_.low && found >= found_.low, room, room && more});
      }
    }
  }
  // The rule of what follows; none: no end can be reached.
  std::optional<RuleId>& rule(uint32_t all, uint32_t found) {
    return rules_[size_t{std::min(all, most_all_)} * (size_t{most_found_} + 1) +
                  std::min(found, most_found_)];
  }

  Counts all_, found_;
  uint32_t low_, most_all_ = 0, most_found_ = 0;
  std::vector<std::optional<RuleId>> rules_;
};

}  // namespace

// An array has as many of prefixItems as it may have elements, then any number by `items`.
Expr SchemaObjects::array(const OrderedJson& schema, const std::string& path, int nesting) {
  const uint32_t low = document_.count(schema, "minItems", 0, path);
  const uint32_t high = document_.count(schema, "maxItems", kUnlimited, path);
  if (low > high) document_.no_value(path, "minItems is more than maxItems");
  const OrderedJson prefix = schema.value("prefixItems", OrderedJson::array());
  if (!prefix.is_array()) document_.refuse(path, "prefixItems must be a list of schemas");
  OrderedJson items = schema.value("items", OrderedJson(prefix.empty()));
  const bool unique = schema.value("uniqueItems", OrderedJson(false)) != OrderedJson(false);
  if (prefix.empty() && unique && high > 1) {
    const std::optional<OrderedJson> few = few_values(items, below(path, "items"), nesting + 1);
    if (!few || schema.contains("contains"))
      document_.refuse(path,
                       "uniqueItems is supported where items lists its values: by enum, "
                       "const, boolean, null or bounds of integers");
    return this->unique(*few, {low, high}, path);
  }
  if (schema.contains("contains")) return containing(schema, {low, high}, path, nesting);
  if (unique && high > 1) document_.refuse(path, "uniqueItems beside prefixItems is not supported");
  std::vector<Expr> fixed;
  for (size_t i = 0; i < std::min<size_t>(prefix.size(), high); ++i) {
    if (i > 0) fixed.push_back(parts_.comma());
    const std::string at = below(below(path, "prefixItems"), std::to_string(i));
    fixed.push_back(values_.value(prefix[i], at, nesting + 1));
  }
  const auto there = static_cast<uint32_t>(std::min<size_t>(prefix.size(), high));
  std::optional<Expr> element;
  if (items != OrderedJson(false) && there < high) {
    try {
      element = builder_.rule_of(below(path, "items"),
                                 values_.value(items, below(path, "items"), nesting + 1));
    } catch (const NoValue&) {
      if (low > there) throw;
    }
  }
  if (!element && low > there)
    document_.no_value(path, "minItems is more than the elements that prefixItems and items allow");
  if (!element && there == 0)
    return builder_.sequence({builder_.text("["), parts_.space(), builder_.text("]")});
  if (!element) return parts_.in_brackets('[', builder_.sequence(std::move(fixed)), false, ']');
  if (there == 0) {
    return parts_.in_brackets('[', parts_.list(*element, std::max(low, 1U), high), low == 0, ']');
  }
  const uint32_t most = high == kUnlimited ? kUnlimited : high - there;
  fixed.push_back(builder_.repeat(builder_.sequence({parts_.comma(), *element}),
                                  low > there ? low - there : 0, most));
  return parts_.in_brackets('[', builder_.sequence(std::move(fixed)), false, ']');
}

// All values of a schema that has few, each once; nullopt: it has many.
std::optional<OrderedJson> SchemaObjects::few_values(const OrderedJson& given,
                                                     const std::string& path, int nesting) {
  constexpr double kMost = 1000;
  if (!given.is_object()) return std::nullopt;
  OrderedJson schema = document_.flat(given, path, nesting);
  OrderedJson found = OrderedJson::array();
  auto add = [&](const OrderedJson& value) {
    const bool known = std::ranges::any_of(
        found, [&](const OrderedJson& other) { return same_value(other, value); });
    if (!known && checker_.valid(value, schema, path, nesting + 1)) found.push_back(value);
  };
  if (schema.contains("anyOf") || schema.contains("oneOf")) {
    const OrderedJson parts = schema.at(schema.contains("anyOf") ? "anyOf" : "oneOf");
    if (!parts.is_array()) return std::nullopt;
    for (const OrderedJson& part : parts) {
      const std::optional<OrderedJson> few = few_values(part, path, nesting + 1);
      if (!few) return std::nullopt;
      for (const OrderedJson& value : *few) add(value);
    }
    return found;
  }
  const OrderedJson type = schema.value("type", OrderedJson());
  if (schema.contains("const")) {
    add(schema.at("const"));
  } else if (schema.contains("enum") && schema.at("enum").is_array()) {
    for (const OrderedJson& value : schema.at("enum")) add(value);
  } else if (type == "boolean") {
    add(true);
    add(false);
  } else if (type == "null") {
    add(nullptr);
  } else if (type == "integer") {
    auto bound = [&](const char* key, const char* exclusive) {
      const bool has = schema.contains(key) || schema.contains(exclusive);
      const OrderedJson number = has ? schema.at(schema.contains(key) ? key : exclusive) : given;
      return number.is_number() ? std::optional(number.get<double>()) : std::nullopt;
    };
    const auto low = bound("minimum", "exclusiveMinimum");
    const auto high = bound("maximum", "exclusiveMaximum");
    if (!low || !high || *high - *low > kMost || std::abs(*low) > 1e15) return std::nullopt;
    for (auto value = static_cast<int64_t>(*low); static_cast<double>(value) <= *high; ++value)
      add(value);
  } else {
    return std::nullopt;
  }
  return found.size() <= kMost ? std::optional(found) : std::nullopt;
}

// Different ones of the values: in any order where they are few, else in that of the list.
Expr SchemaObjects::unique(const OrderedJson& values, Counts counts, const std::string& path) {
  constexpr size_t kFew = 8;
  std::vector<Expr> texts;
  for (const OrderedJson& value : values) texts.push_back(parts_.literal(value));
  if (counts.low > texts.size()) document_.no_value(path, "minItems is more than the values");
  const bool or_none = counts.low == 0;
  counts = {std::max(counts.low, 1U), std::min(counts.high, static_cast<uint32_t>(texts.size()))};
  if (counts.high == 0)
    return builder_.sequence({builder_.text("["), parts_.space(), builder_.text("]")});
  if (texts.size() <= kFew) return parts_.in_brackets('[', permuted(texts, counts), or_none, ']');
  std::vector<Member> members;
  for (Expr text : texts) members.push_back({text, false});
  const std::optional<Expr> inside = counted(members, std::nullopt, counts, path);
  return parts_.in_brackets('[', *inside, or_none, ']');
}

// Builds, for each set of values that have come, what may come next.
Expr SchemaObjects::permuted(const std::vector<Expr>& values, Counts counts) {
  const size_t sets = size_t{1} << values.size();
  std::vector<std::optional<Expr>> next(sets);
  for (size_t used = sets; used-- > 0;) {
    const auto count = static_cast<uint32_t>(std::popcount(used));
    if (count >= counts.high) continue;
    std::vector<Expr> alternatives;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t then = used | size_t{1} << i;
      if (then == used) continue;
      const bool ends = count + 1 >= counts.low;
      if (!next[then]) {
        alternatives.push_back(values[i]);
        continue;
      }
      const Expr others = builder_.sequence({parts_.comma(), *next[then]});
      alternatives.push_back(
          builder_.sequence({values[i], ends ? builder_.optional(others) : others}));
    }
    next[used] = builder_.rule_of("elements", builder_.choice(std::move(alternatives)));
  }
  return *next[0];
}

// So many elements that have what is asked for, at any place.
Expr SchemaObjects::containing(const OrderedJson& schema, Counts counts, const std::string& path,
                               int nesting) {
  if (schema.contains("prefixItems"))
    document_.refuse(path, "contains beside prefixItems is not supported");
  const OrderedJson items = schema.value("items", OrderedJson(true));
  const OrderedJson& asked = schema.at("contains");
  auto element = [&](OrderedJson more) -> std::optional<Expr> {
    const OrderedJson both({{"allOf", OrderedJson::array({items, std::move(more)})}});
    try {
      const std::string at = below(path, "contains");
      return builder_.rule_of(at, values_.value(both, at, nesting + 1));
    } catch (const NoValue&) {
      return std::nullopt;
    }
  };
  const Counts found{document_.count(schema, "minContains", 1, path),
                     document_.count(schema, "maxContains", kUnlimited, path)};
  const bool limited = found.high != kUnlimited;
  ContainingElements elements(counts, found);
  if (!elements.is_supported())
    document_.refuse(path, "contains with these counts is not supported");
  const std::optional<Expr> hit = element(asked);
  const std::optional<Expr> other =
      element(limited ? OrderedJson({{"not", asked}}) : OrderedJson(true));
  const std::optional<RuleId> all = elements.build(builder_, parts_.comma(), hit, other);
  if (!all) document_.no_value(path, "no array contains what is asked for");
  return builder_.sequence({builder_.text("["), parts_.space(), builder_.call(*all), parts_.space(),
                            builder_.text("]")});
}

}  // namespace sluice::grammar
