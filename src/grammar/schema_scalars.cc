#include "src/grammar/schema_scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/grammar/regex_tree.h"
#include "src/grammar/schema_formats.h"

namespace sluice::grammar {
namespace {

constexpr uint32_t kMostNumberDigits = 20;

OrderedJson list_of_key(const OrderedJson& schema, const char* key, const char* further) {
  OrderedJson list = schema.value(further, OrderedJson::array());
  if (schema.contains(key)) list.push_back(schema.at(key));
  return list;
}

// `^[set]{2,}$` has texts of its counts.
struct CountedSet {
  CharRanges ranges;
  uint32_t low = 0;
  uint32_t high = 0;
};
std::optional<CountedSet> counted_set(const RegexNode& tree) {
  using Kind = RegexNode::Kind;
  if (tree.kind != Kind::sequence || tree.parts.size() != 3 || tree.parts[0].kind != Kind::begin ||
      tree.parts[2].kind != Kind::end)
    return std::nullopt;
  const RegexNode& node = tree.parts[1];
  if (node.kind != Kind::repeat || node.parts.front().kind != Kind::characters) return std::nullopt;
  return CountedSet{node.parts.front().ranges, node.low, node.high};
}

struct SignedDecimal {
  bool negative = false;
  Decimal magnitude;
  bool is_zero() const {
    return magnitude.whole == "0" && magnitude.fraction.find_first_not_of('0') == std::string::npos;
  }
};

// Reads a number as it is printed: 12, -0.5, 1.5e-07.
SignedDecimal decimal_of(const OrderedJson& number) {
  std::string text = number.dump();
  SignedDecimal made;
  made.negative = text.starts_with('-');
  if (made.negative) text.erase(0, 1);
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    const size_t digits = e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + digits, text.data() + text.size(), exponent);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  auto at = static_cast<int>(point) + exponent;
  if (at < 0) digits.insert(0, static_cast<size_t>(-at), '0');
  at = std::max(at, 0);
  if (static_cast<size_t>(at) > digits.size()) digits.resize(static_cast<size_t>(at), '0');
  made.magnitude.fraction = digits.substr(static_cast<size_t>(at));
  digits.resize(static_cast<size_t>(at));
  const size_t first = digits.find_first_not_of('0');
  made.magnitude.whole = first == digits.npos ? "0" : digits.substr(first);
  const size_t last = made.magnitude.fraction.find_last_not_of('0');
  made.magnitude.fraction.resize(last == std::string::npos ? 0 : last + 1);
  return made;
}

// multipleOf as a divisor of numbers with `places` more digits.
struct Multiple {
  uint32_t divisor = 1;
  uint32_t places = 0;
};

}  // namespace

// Adds the schema's place to an Error from within.
template <class Make>
auto SchemaScalars::told(const std::string& path, const char* what, Make make) const {
  try {
    return make();
  } catch (const NoValue&) {
    throw;
  } catch (const Error& e) {
    std::string_view why = e.what();
    if (why.starts_with(builder_.where())) why.remove_prefix(builder_.where().size() + 2);
    document_.refuse(path, "{}: {}", what, why);
  }
}

Expr SchemaScalars::held(Languages& languages, Term term, Alphabet alphabet,
                         const std::string& path) {
  return told(path, "pattern, format, lengths or not", [&] {
    if (languages.is_empty(term)) document_.no_value(path, "no string is valid by all its rules");
    const Expr expr = languages.expr(builder_, term, alphabet);
    document_.count_small_steps(path, languages.steps());
    return expr;
  });
}

Expr SchemaScalars::quoted(Languages& languages, Term term, const std::string& path) {
  const Expr inside = held(languages, term, Alphabet::json_string, path);
  return builder_.sequence({builder_.text("\""), inside, builder_.text("\"")});
}

Expr SchemaScalars::bare_string(const OrderedJson& schema, std::string_view end,
                                const std::string& path) {
  Languages languages(builder_.where());
  const Term any = languages.anything();
  Term term = string_term(languages, schema, path);
  if (!end.empty()) {
    const Term with_end = languages.sequence(any, languages.sequence(languages.text(end), any));
    term = languages.both({term, languages.without(with_end)});
  }
  return held(languages, term, Alphabet::text, path);
}

Term SchemaScalars::pattern_term(Languages& languages, const OrderedJson& pattern,
                                 const std::string& path) {
  if (!pattern.is_string()) document_.refuse(path, "pattern must be a string");
  return told(path, "pattern", [&] {
    return languages.regex(pattern.get_ref<const std::string&>(), Match::within);
  });
}

Expr SchemaScalars::pattern_expr(const OrderedJson& pattern, const std::string& path) {
  return told(path, "pattern", [&] {
    return regex(builder_, pattern.get_ref<const std::string&>(), Alphabet::json_string,
                 Match::within);
  });
}

Expr SchemaScalars::held_string(const OrderedJson& schema, const std::string& path) {
  Languages languages(builder_.where());
  return quoted(languages, string_term(languages, schema, path), path);
}

Term SchemaScalars::string_term(Languages& languages, const OrderedJson& schema,
                                const std::string& path) {
  const uint32_t low = document_.count(schema, "minLength", 0, path);
  const uint32_t high = document_.count(schema, "maxLength", kUnlimited, path);
  std::vector<Term> terms;
  const Term any = languages.characters({{0, 0x10FFFF}});
  if (low > 0 || high != kUnlimited) terms.push_back(languages.repeat(any, low, high));
  for (const OrderedJson& pattern : list_of_key(schema, "pattern", kPatterns))
    terms.push_back(pattern_term(languages, pattern, path));
  for (const OrderedJson& pattern : schema.value(kUnlike, OrderedJson::array()))
    terms.push_back(languages.without(pattern_term(languages, pattern, path)));
  for (const OrderedJson& value : schema.value(kExcluded, OrderedJson::array()))
    if (value.is_string())
      terms.push_back(languages.without(languages.text(value.get_ref<const std::string&>())));
  const Term ruled = languages.both(terms);
  return told(path, "format beside other rules", [&] {
    std::vector<Term> all{ruled};
    for (const OrderedJson& format : list_of_key(schema, "format", kFormats)) {
      if (!format.is_string()) continue;
      const std::string_view pattern =
          high == kUnlimited ? format_pattern(format.get_ref<const std::string&>())
                             : unlimited_format_pattern(format.get_ref<const std::string&>());
      if (!pattern.empty()) all.push_back(languages.regex(pattern, Match::whole));
    }
    // A format is an annotation: where it contradicts the rules, these hold.
    const Term whole = languages.both(all);
    return all.size() > 1 && languages.is_empty(whole) ? ruled : whole;
  });
}

Expr SchemaScalars::string(const OrderedJson& schema, const std::string& path) {
  uint32_t low = document_.count(schema, "minLength", 0, path);
  uint32_t high = document_.count(schema, "maxLength", kUnlimited, path);
  if (low > high) document_.no_value(path, "minLength is more than maxLength");
  const OrderedJson patterns = list_of_key(schema, "pattern", kPatterns);
  const OrderedJson formats = list_of_key(schema, "format", kFormats);
  const OrderedJson excluded = schema.value(kExcluded, OrderedJson::array());
  const bool others = schema.contains(kUnlike) ||
                      std::ranges::any_of(excluded, [](const auto& v) { return v.is_string(); });
  bool limited = low > 0 || high != kUnlimited;
  Expr inside{};
  if (others || patterns.size() + formats.size() > 1) {
    return held_string(schema, path);
  }
  if (!patterns.empty()) {
    const auto set = told(path, "pattern", [&] {
      return counted_set(parse_regex(patterns.front().get<std::string>(), builder_.where()));
    });
    if (limited && !set) return held_string(schema, path);
    if (set && limited) {
      low = std::max(low, set->low);
      high = std::min(high, set->high);
      if (low > high) document_.no_value(path, "no string has the pattern and the lengths");
      inside = builder_.repeat(characters(builder_, set->ranges, Alphabet::json_string), low, high);
    } else {
      inside = pattern_expr(patterns.front(), path);
    }
  } else if (!formats.empty()) {
    const auto name = formats.front().get<std::string>();
    if (limited && !format_has_lengths(name, low, high)) return held_string(schema, path);
    inside = regex(builder_, format_pattern(name), Alphabet::json_string, Match::whole);
  } else if (limited) {
    inside = builder_.repeat(parts_.character(), low, high);
  } else {
    return parts_.string();
  }
  return builder_.sequence({builder_.text("\""), inside, builder_.text("\"")});
}

// Returns whether all bounds are integers of 64 bits, and nothing else is said.
bool SchemaScalars::has_whole_bounds(const OrderedJson& schema, bool integer) {
  constexpr double kMost = 9.2e18;
  const OrderedJson excluded = schema.value(kExcluded, OrderedJson::array());
  if (std::ranges::any_of(excluded, [](const auto& value) { return value.is_number(); }))
    return false;
  auto multiple = schema.find("multipleOf");
  if (multiple != schema.end() && !(integer && *multiple == OrderedJson(1))) return false;
  return std::ranges::all_of(kBounds, [&](const Bound& b) {
    auto found = schema.find(b.keyword);
    if (found == schema.end()) return true;
    if (found->is_number_unsigned()) return found->get<uint64_t>() <= uint64_t{INT64_MAX};
    if (found->is_number_integer()) return true;
    const double given = found->get<double>();
    return given == std::floor(given) && std::abs(given) <= kMost;
  });
}

Expr SchemaScalars::number(const OrderedJson& schema, bool integer, const std::string& path) {
  for (const Bound& b : kBounds)
    if (schema.contains(b.keyword) && !schema.at(b.keyword).is_number())
      document_.refuse(path, "{} must be a number", b.keyword);
  if (!has_whole_bounds(schema, integer)) {
    if (std::optional<Expr> few = integer ? few_multiples(schema, path) : std::nullopt) return *few;
    return held_number(schema, integer, path);
  }
  return within_bounds(schema, integer, path);
}

Expr SchemaScalars::within_bounds(const OrderedJson& schema, bool integer,
                                  const std::string& path) {
  NumberRange range;
  for (const Bound& b : kBounds) bound(schema, b, range);
  const bool open = range.without_low || range.without_high;
  if (range.low && range.high && (*range.low > *range.high || (open && range.low == range.high)))
    document_.no_value(path, "no number lies between the bounds");
  if (!range.low && !range.high) return integer ? parts_.integer() : parts_.number();
  return integer ? parts_.integer(range) : parts_.number(range);
}

// The tighter one of two counts.
void SchemaScalars::bound(const OrderedJson& schema, const Bound& b, NumberRange& range) {
  auto found = schema.find(b.keyword);
  if (found == schema.end()) return;
  const int64_t value = found->is_number_integer() ? found->get<int64_t>()
                                                   : static_cast<int64_t>(found->get<double>());
  std::optional<int64_t>& bound = b.low ? range.low : range.high;
  bool& without = b.low ? range.without_low : range.without_high;
  const bool tighter = !bound || (b.low ? value > *bound : value < *bound);
  if (tighter) without = b.exclusive;
  if (bound == value) without = without || b.exclusive;
  if (tighter) bound = value;
}

// Integers that are listed, where they are few.
std::optional<Expr> SchemaScalars::few_multiples(const OrderedJson& schema,
                                                 const std::string& path) {
  constexpr double kMost = 1e15;
  constexpr int64_t kFew = 2000;
  const OrderedJson multiple = schema.value("multipleOf", OrderedJson(1));
  const OrderedJson excluded = schema.value(kExcluded, OrderedJson::array());
  if (!multiple.is_number_unsigned() || multiple.get<uint64_t>() == 0) return std::nullopt;
  double low = -kMost * 2, high = kMost * 2;
  for (const Bound& b : kBounds) {
    if (!schema.contains(b.keyword)) continue;
    const auto given = schema.at(b.keyword).get<double>();
    if (std::abs(given) > kMost) continue;
    const double inside = b.low ? std::ceil(given) : std::floor(given);
    const double step = b.exclusive && inside == given ? (b.low ? 1 : -1) : 0;
    (b.low ? low : high) = b.low ? std::max(low, inside + step) : std::min(high, inside + step);
  }
  const auto divisor = multiple.get<uint64_t>();
  if (std::abs(low) > kMost || std::abs(high) > kMost || static_cast<double>(divisor) > kMost)
    return std::nullopt;
  const auto by = static_cast<int64_t>(divisor);
  const auto last = static_cast<int64_t>(high);
  int64_t value = static_cast<int64_t>(std::ceil(low / static_cast<double>(by))) * by;
  if (value < static_cast<int64_t>(low)) value += by;
  if (last >= value && (last - value) / by > kFew) return std::nullopt;
  std::vector<std::string> texts;
  for (; value <= last; value += by)
    if (std::ranges::find(excluded, OrderedJson(value)) == excluded.end())
      texts.push_back(std::to_string(value));
  if (texts.empty()) document_.no_value(path, "no number lies between the bounds");
  return builder_.one_of(std::move(texts));
}

// Builds what may come behind the sign.
Term SchemaScalars::magnitudes(Languages& languages, const OrderedJson& schema, bool negative,
                               bool integer, const std::string& path) {
  constexpr uint32_t kFewRests = 64, kMostDivisor = 10'000, kMostPlaces = 9;
  std::vector<Term> all;
  uint32_t digits = kMostNumberDigits;
  if (schema.contains("multipleOf")) {
    const OrderedJson& given = schema.at("multipleOf");
    if (!given.is_number() || given <= OrderedJson(0))
      document_.refuse(path, "multipleOf must be a number above 0");
    const Decimal of = decimal_of(given).magnitude;
    const std::string whole = of.whole + of.fraction;
    const auto divisor = parse_number<uint32_t>(whole);
    if (!divisor || *divisor > kMostDivisor || of.fraction.size() > kMostPlaces)
      document_.refuse(path, "multipleOf has more than {} digits, which is not supported", 4);
    all.push_back(languages.multiples(*divisor, static_cast<uint32_t>(of.fraction.size())));
    if (*divisor > kFewRests) digits = kUnlimited;
  }
  auto digit_term = [&](char32_t first) { return languages.characters({{first, U'9'}}); };
  const uint32_t rest = digits == kUnlimited ? kUnlimited : digits - 1;
  Term whole = languages.sequence(digit_term('1'), languages.repeat(digit_term('0'), 0, rest));
  if (!integer || !negative) whole = languages.either({whole, languages.text("0")});
  if (!integer) {
    const Term fraction =
        languages.sequence(languages.text("."), languages.repeat(digit_term('0'), 1, digits));
    whole = languages.sequence(whole, languages.repeat(fraction, 0, 1));
  }
  all.push_back(whole);
  for (const Bound& b : kBounds) {
    if (!schema.contains(b.keyword)) continue;
    SignedDecimal bound = decimal_of(schema.at(b.keyword));
    if (bound.is_zero()) bound.negative = negative;
    // A lower bound of negative numbers bounds their magnitude from above.
    const bool from_below = b.low != negative;
    if (bound.negative != negative) {
      if (b.low != bound.negative) return languages.nothing();
      continue;
    }
    all.push_back(languages.compared(from_below
                                         ? (b.exclusive ? Compared::more : Compared::at_least)
                                         : (b.exclusive ? Compared::less : Compared::at_most),
                                     bound.magnitude));
  }
  for (const OrderedJson& value : schema.value(kExcluded, OrderedJson::array())) {
    if (!value.is_number()) continue;
    const SignedDecimal number = decimal_of(value);
    if (number.negative != negative && !number.is_zero()) continue;
    all.push_back(languages.without(
        languages.both({languages.compared(Compared::at_most, number.magnitude),
                        languages.compared(Compared::at_least, number.magnitude)})));
  }
  return languages.both(std::move(all));
}

Expr SchemaScalars::held_number(const OrderedJson& schema, bool integer, const std::string& path) {
  return told(path, "bounds or multipleOf", [&] {
    std::vector<Expr> signs;
    for (bool negative : {false, true}) {
      Languages languages(builder_.where());
      const Term term = magnitudes(languages, schema, negative, integer, path);
      if (languages.is_empty(term)) continue;
      const Expr digits = languages.expr(builder_, term, Alphabet::text);
      document_.count_small_steps(path, languages.steps());
      signs.push_back(negative ? builder_.sequence({builder_.text("-"), digits}) : digits);
    }
    if (signs.empty()) document_.no_value(path, "no number lies between the bounds");
    return builder_.choice(std::move(signs));
  });
}

}  // namespace sluice::grammar
