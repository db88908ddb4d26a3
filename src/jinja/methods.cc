// Methods of strings, lists and dicts.
#include "src/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/jinja/function_object.h"
#include "src/jinja/functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

Value list_count(const Value& s, const Bound& a) {
  int64_t count = 0;
  for (const Value& item : s.items()) count += equal(a.meter(), item, a.value(0)) ? 1 : 0;
  return Value::integer(count);
}

Value list_index(const Value& s, const Bound& a) {
  const auto size = static_cast<int64_t>(s.items().size());
  auto bound = [&](size_t i, int64_t fallback) {
    const int64_t at = a.integer(i, fallback);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t end = bound(2, size);
  for (int64_t i = bound(1, 0); i < end; ++i)
    if (equal(a.meter(), s.items()[static_cast<size_t>(i)], a.value(0))) return Value::integer(i);
  refuse(FaultKind::value, "{} is not in list", brief_repr(a.meter(), a.value(0)));
}

Value copy(const Value& s, const Bound&) { return s; }

Value dict_get(const Value& s, const Bound& a) {
  const Value key = a.value(0);
  if (key.is(Kind::text)) a.meter().text_steps(4 * key.text().size());
  const Value* found = s.dict().find(key);
  return found != nullptr ? *found : a.value(1);
}

Value dict_keys(const Value& s, const Bound& a) {
  return make_view(a.meter(), iterate(a.meter(), s), "dict_keys");
}

Value dict_values(const Value& s, const Bound& a) {
  Values values;
  for (const auto& [key, value] : s.dict().entries) values.push_back(value);
  return make_view(a.meter(), std::move(values), "dict_values");
}

Value dict_items(const Value& s, const Bound& a) {
  Values pairs;
  for (const auto& [key, value] : s.dict().entries)
    pairs.push_back(make_tuple(a.meter(), {key, value}));
  return make_view(a.meter(), std::move(pairs), "dict_items");
}

// A dict of keys with the same value.
Value dict_fromkeys(const Value&, const Bound& a) {
  std::vector<Dict::Entry> entries;
  for (Value& key : iterate(a.meter(), a.value(0)))
    entries.emplace_back(std::move(key), a.value(1));
  return make_dict(a.meter(), std::move(entries));
}

Value is_integral(const Value& s, const Bound&) {
  return Value::boolean(std::isfinite(s.real()) && s.real() == std::floor(s.real()));
}

constexpr std::array kListMethods = std::to_array<Filter>({
    {"count", "value", list_count},
    {"index", "value start= stop=", list_index},
    {"copy", "", copy},
});
constexpr std::array kDictMethods = std::to_array<Filter>({
    {"get", "key default=", dict_get},
    {"keys", "", dict_keys},
    {"values", "", dict_values},
    {"items", "", dict_items},
    {"copy", "", copy},
    {"fromkeys", "iterable value=", dict_fromkeys},
});
constexpr std::array kRealMethods = std::to_array<Filter>({
    {"is_integer", "", is_integral},
});

// Methods that would change a value.
constexpr std::array<std::string_view, 8> kListChanges{"append", "clear",  "extend",  "insert",
                                                       "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictChanges{"clear", "pop", "popitem", "setdefault",
                                                       "update"};

std::span<const Filter> methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::text:
      return string_methods();
    case Kind::list:
      return kListMethods;
    case Kind::tuple:
    case Kind::range:
      return std::span(kListMethods).first(2);
    case Kind::dict:
      return kDictMethods;
    case Kind::real:
      return kRealMethods;
    default:
      return {};
  }
}

bool changes(const Value& value, std::string_view name) {
  if (value.is(Kind::list)) return std::ranges::find(kListChanges, name) != kListChanges.end();
  return value.is(Kind::dict) && std::ranges::find(kDictChanges, name) != kDictChanges.end();
}

}  // namespace

std::optional<Value> find_method(Run& run, const Value& subject, std::string_view name) {
  if (changes(subject, name)) {
    return make_missing(
        run.meter(),
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(subject)),
        FaultKind::security);
  }
  const std::span<const Filter> methods = methods_of(subject);
  auto found = std::ranges::find(methods, name, &Filter::name);
  if (found == methods.end()) return std::nullopt;
  const Filter& method = *found;
  auto act = [&run, &method, subject](const Arguments& arguments) {
    return apply_filter(run, method, subject, arguments);
  };
  return make_function(run, std::string(name), act, subject);
}

}  // namespace sluice::jinja
