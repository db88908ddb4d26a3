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
Values take_attributes(const Values& items, const Bound& a) {
  std::optional<Value> path, standard;
  for (const auto& [name, value] : a.rest().named) {
    if (name != "attribute" && name != "default")
      refuse(FaultKind::value, "map() takes no argument '{}'", name);
    (name == "attribute" ? path : standard) = value;
  }
  if (!path) refuse(FaultKind::value, "map() needs the name of a filter");
  const AttributePath attribute(a, *path);
  Values mapped;
  for (const Value& item : items) {
    Value value = attribute.of(item);
    if (value.is(Kind::undefined) && standard && !standard->is(Kind::none)) value = *standard;
    mapped.push_back(std::move(value));
  }
  return mapped;
}

Value map_filter(const Value& s, const Bound& a) {
  if (s.is(Kind::undefined)) return make_iterator(a.meter(), {});
  const Values items = iterate(a.meter(), s);
  if (a.rest().positional.empty()) return make_iterator(a.meter(), take_attributes(items, a));
  const std::string name = name_of(a, 0, "filter");
  const Filter* filter = find_filter(name);
  if (filter == nullptr) refuse(FaultKind::syntax, "no filter named '{}'", name);
  Values mapped;
  for (const Value& item : items)
    mapped.push_back(apply_filter(a.run(), *filter, item, without_first(a.rest(), 1)));
  return make_iterator(a.meter(), std::move(mapped));
}

// The items for which a test holds (or not) on them, or on an attribute of them.
Value choose(const Value& s, const Bound& a, bool keeps, bool by_attribute) {
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
  Values chosen;
  for (const Value& item : iterate(a.meter(), s)) {
    const Value value = path.of(item);
    const bool holds = test == nullptr
                           ? truth(value)
                           : apply_test(a.run(), *test, value, without_first(a.rest(), skip + 1));
    if (holds == keeps) chosen.push_back(item);
  }
  return make_iterator(a.meter(), std::move(chosen));
}

Value select_filter(const Value& s, const Bound& a) { return choose(s, a, true, false); }
Value reject_filter(const Value& s, const Bound& a) { return choose(s, a, false, false); }
Value selectattr_filter(const Value& s, const Bound& a) { return choose(s, a, true, true); }
Value rejectattr_filter(const Value& s, const Bound& a) { return choose(s, a, false, true); }

constexpr std::array kFilters = std::to_array<Filter>({
    {"map", "*", map_filter},
    {"select", "*", select_filter},
    {"reject", "*", reject_filter},
    {"selectattr", "*", selectattr_filter},
    {"rejectattr", "*", rejectattr_filter},
});

}  // namespace

std::span<const Filter> choice_filters() { return kFilters; }

}  // namespace sluice::jinja
