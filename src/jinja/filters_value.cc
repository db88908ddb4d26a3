#include <algorithm>
#include <array>
#include <cmath>

#include "src/jinja/filters.h"
#include "src/jinja/number_format.h"
#include "src/jinja/numbers.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

Value default_filter(const Value& s, const Bound& a) {
  if (!s.is(Kind::undefined) && (!a.flag(1) || truth(s))) return s;
  return a.has(0) ? a.value(0) : make_text(a.meter(), {});
}

Value string_filter(const Value& s, const Bound& a) {
  return s.is(Kind::text) ? s : make_text(a.meter(), text_of(a.meter(), s));
}

std::optional<Value> truncated(Meter& meter, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return integer_value(meter, BigInteger::of(value));
}

Value int_filter(const Value& s, const Bound& a) {
  need_defined(s);
  std::optional<Value> result;
  if (s.is_integer()) result = Value::integer(s.integer());
  if (s.is(Kind::real)) result = is_whole(s) ? s : truncated(a.meter(), s.real());
  if (s.is(Kind::text)) {
    a.meter().text_steps(s.text().size());
    const int64_t base = a.integer(1, 10);
    const int in_range = base < 0 || base > 36 ? 1 : static_cast<int>(base);
    if (const std::optional<BigInteger> integer = read_integer(s.text(), in_range))
      result = integer_value(a.meter(), *integer);
    if (!result) {
      if (std::optional<double> real = read_real(s.text())) result = truncated(a.meter(), *real);
    }
  }
  return result ? *result : a.has(0) ? a.value(0) : Value::integer(0);
}

Value float_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (s.is_number()) return Value::real(s.real());
  if (s.is(Kind::text)) {
    a.meter().text_steps(s.text().size());
    if (std::optional<double> real = read_real(s.text())) return Value::real(*real);
  }
  return a.has(0) ? a.value(0) : Value::real(0);
}

Value abs_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (is_whole(s) && !s.is_integer()) return s.real() < 0 ? negative(a.meter(), s) : s;
  if (s.is(Kind::real)) return Value::real(std::fabs(s.real()));
  if (!s.is_integer()) refuse(FaultKind::value, "bad operand type for abs(): '{}'", type_name(s));
  return s.integer() < 0 ? negative(a.meter(), s) : positive(s);
}

// Half goes to the even neighbour, of the number as it is stored.
double round_to(double value, int64_t places) {
  if (!std::isfinite(value) || places > 320) return value;
  if (places >= 0) {
    FormatSpec spec;
    spec.precision = places;
    spec.type = 'f';
    return std::strtod(real_digits(value, spec).c_str(), nullptr);
  }
  if (places < -308) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-places));
  return std::nearbyint(value / unit) * unit;
}

// The nearest multiple of 10 ** -places; half goes to the even one.
Value round_whole(Meter& meter, const Value& value, int64_t places) {
  if (places < -static_cast<int64_t>(BigInteger::kMostDigits)) return Value::integer(0);
  const BigInteger unit = power(meter, BigInteger(10), static_cast<uint64_t>(-places));
  auto [quotient, rest] = divide(whole_of(meter, value), unit);
  const auto half = rest + rest <=> unit;
  if (half > 0 || (half == 0 && !divide(quotient, BigInteger(2)).second.zero()))
    quotient = quotient + BigInteger(1);
  return integer_value(meter, quotient * unit);
}

Value round_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (!s.is_number()) refuse(FaultKind::value, "round() needs a number, not {}", type_name(s));
  const int64_t places = a.integer(0, 0);
  const std::string method = a.text(1, "common");
  if (method == "common") {
    if (is_whole(s) && places >= 0) return s.is_integer() ? Value::integer(s.integer()) : s;
    return is_whole(s) ? round_whole(a.meter(), s, places)
                       : Value::real(round_to(s.real(), places));
  }
  if (method != "ceil" && method != "floor")
    refuse(FaultKind::value, "round(): the method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(places));
  const double scaled = s.real() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value attr_filter(const Value& s, const Bound& a) {
  const std::string name = a.text(0, {});
  if (s.is(Kind::dict)) {  // attributes only, and no keys
    if (std::optional<Value> method = find_method(a.run(), s, name)) return *std::move(method);
    return make_missing(a.meter(), fmt::format("'dict object' has no attribute '{}'", name));
  }
  return attribute_of(a.run(), s, name);
}

JsonStyle json_style(const Bound& a) {
  JsonStyle style;
  style.ascii = a.flag(0);
  style.sort_keys = a.flag(3);
  if (!a.is_none(1)) {
    constexpr int64_t kMost = 1000;
    const bool spaces = a.value(1).is_integer();
    if (spaces && a.integer(1, 0) > kMost)
      refuse(FaultKind::limit, "tojson() with an indent of more than {}", kMost);
    style.indent =
        spaces ? std::string(static_cast<size_t>(std::max<int64_t>(a.integer(1, 0), 0)), ' ')
               : a.text(1, {});
    style.item_separator.pop_back();
  }
  if (a.is_none(2)) return style;
  const Values separators = iterate(a.meter(), a.value(2));
  if (separators.size() != 2 || !separators[0].is(Kind::text) || !separators[1].is(Kind::text))
    refuse(FaultKind::value, "tojson(): separators are two strings");
  style.item_separator = separators[0].text();
  style.key_separator = separators[1].text();
  return style;
}

Value tojson_filter(const Value& s, const Bound& a) {
  Buffer out(a.meter());
  append_json(s, json_style(a), out);
  return make_text(a.meter(), out.take());
}

Value filesizeformat_filter(const Value& s, const Bound& a) {
  std::optional<double> bytes;
  if (s.is_number()) bytes = s.real();
  if (s.is(Kind::text)) bytes = read_real(s.text());
  if (!bytes) refuse(FaultKind::value, "filesizeformat() needs a number, not {}", type_name(s));
  const bool binary = a.flag(0);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return make_text(a.meter(), "1 Byte");
  if (*bytes < base) return make_text(a.meter(), fmt::format("{} Bytes", std::trunc(*bytes)));
  constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (; i + 1 < kUnits.size() && *bytes >= unit * base; ++i) unit *= base;
  const char letter = binary && i == 0 ? 'K' : kUnits[i];
  return make_text(a.meter(),
                   fmt::format("{:.1f} {}{}B", *bytes / unit, letter, binary ? "i" : ""));
}

constexpr std::array kValueFilters = std::to_array<Filter>({
    {"default", "default_value= boolean=", default_filter},
    {"d", "default_value= boolean=", default_filter},
    {"string", "", string_filter},
    {"int", "default= base=", int_filter},
    {"float", "default=", float_filter},
    {"abs", "", abs_filter},
    {"round", "precision= method=", round_filter},
    {"attr", "name", attr_filter},
    {"tojson", "ensure_ascii= indent= separators= sort_keys=", tojson_filter},
    {"filesizeformat", "binary=", filesizeformat_filter},
});

}  // namespace

std::span<const Filter> value_filters() { return kValueFilters; }

}  // namespace sluice::jinja
