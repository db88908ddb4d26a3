#include <array>

#include "src/jinja/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

std::string name_of(const Bound& a, size_t i, std::string_view what) {
  const Value& name = a.rest().positional[i];
  if (!name.is(Kind::text))
    refuse(FaultKind::value, "a {} is given by its name, not by {}", what, type_name(name));
  return name.text();
}

// map(attribute=...)
void take_attributes(const Value& s, const Bound& a, Values& mapped) {
  std::optional<Value> path, standard;
  for (const auto& [name, value] : a.rest().named) {
    if (name != "attribute" && name != "default")
      refuse(FaultKind::value, "map() takes no argument '{}'", name);
    (name == "attribute" ? path : standard) = value;
  }
  if (!path) refuse(FaultKind::value, "map() needs the name of a filter");
  const AttributePath attribute(a, *path);
  for (const Value& item : iterate(a.meter(), s))
    mapped.push_back(attribute.of(item, standard.value_or(Value::none())));
}

Value map_filter(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& mapped) {
    if (!truth(s)) return;
    if (a.rest().positional.empty()) return take_attributes(s, a, mapped);
    const std::string name = name_of(a, 0, "filter");
    const Filter* filter = find_filter(name);
    if (filter == nullptr) refuse(FaultKind::syntax, "no filter named '{}'", name);
    for (const Value& item : iterate(a.meter(), s))
      mapped.push_back(apply_filter(a.run(), *filter, item, without_first(a.rest(), 1)));
  });
}

// The items for which a test holds (or not) on them, or on an attribute of them.
void choose(const Value& s, const Bound& a, bool keeps, bool by_attribute, Values& chosen) {
  if (!truth(s)) return;
  const size_t skip = by_attribute ? 1 : 0;
  const Values& given = a.rest().positional;
  if (by_attribute && given.empty())
    refuse(FaultKind::value, "selectattr() and rejectattr() need the name of an attribute");
  const AttributePath path(a, by_attribute ? given[0] : Value::none());
  const Test* test = nullptr;
  if (given.size() > skip) {
    const std::string name = name_of(a, skip, "test");
    test = find_test(name);
    if (test == nullptr) refuse(FaultKind::syntax, "no test named '{}'", name);
  }
  for (const Value& item : iterate(a.meter(), s)) {
    const Value value = path.of(item);
    const bool holds = test == nullptr
                           ? truth(value)
                           : apply_test(a.run(), *test, value, without_first(a.rest(), skip + 1));
    if (holds == keeps) chosen.push_back(item);
  }
}

template <bool Keeps, bool ByAttribute>
Value chosen(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& items) { choose(s, a, Keeps, ByAttribute, items); });
}

constexpr std::array kChoiceFilters = std::to_array<Filter>({
    {"map", "*", map_filter},
    {"select", "*", chosen<true, false>},
    {"reject", "*", chosen<false, false>},
    {"selectattr", "*", chosen<true, true>},
    {"rejectattr", "*", chosen<false, true>},
});

}  // namespace

std::span<const Filter> choice_filters() { return kChoiceFilters; }

}  // namespace sluice::jinja
