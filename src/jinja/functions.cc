#include "src/jinja/functions.h"

#include <algorithm>

#include "src/base/strings.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

// "dict object", as Jinja says it in errors.
std::string object_of(const Value& value) {
  if (value.is(Kind::none)) return "None";
  return type_name(value) + " object";
}

bool is_hidden(std::string_view name) { return name.starts_with("__"); }

Value hidden(Run& run, const Value& object, std::string_view name) {
  return make_missing(
      run.meter(),
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)),
      FaultKind::security);
}

std::optional<Value> find_attribute(Run& run, const Value& object, std::string_view name) {
  if (is_hidden(name)) return hidden(run, object, name);
  if (object.is(Kind::object)) {
    if (name.starts_with('_')) return hidden(run, object, name);
    return object.instance().attribute(name);
  }
  const bool pair = object.is(Kind::tuple) && object.list().group;
  if (pair && name == "grouper") return object.items()[0];
  if (pair && name == "list") return object.items()[1];
  return find_method(run, object, name);
}

}  // namespace

Bound::Bound(Run& run, std::string_view function, std::string_view parameters, Arguments arguments)
    : run_(run), function_(function) {
  bind(parameters, arguments);
}

Meter& Bound::meter() const { return run_.meter(); }

std::optional<Value> Bound::next_argument(std::string_view name, Arguments& arguments,
                                          size_t& used) {
  auto named =
      std::ranges::find_if(arguments.named, [&](const auto& a) { return a.first == name; });
  const bool by_place = used < arguments.positional.size();
  if (named == arguments.named.end()) {
    if (by_place) return std::move(arguments.positional[used++]);
    return std::nullopt;
  }
  if (by_place) refuse(FaultKind::value, "{}() got argument '{}' twice", function_, name);
  Value value = std::move(named->second);
  arguments.named.erase(named);
  return value;
}

void Bound::bind(std::string_view parameters, Arguments& arguments) {
  size_t used = 0;
  while (!parameters.empty()) {
    std::string_view name = take_until(parameters, ' ');
    if (name == "*") {
      for (; used < arguments.positional.size(); ++used)
        rest_.positional.push_back(std::move(arguments.positional[used]));
      rest_.named = std::move(arguments.named);
      return;
    }
    const bool optional = name.ends_with('=');
    if (optional) name.remove_suffix(1);
    values_.push_back(next_argument(name, arguments, used));
    if (!optional && !values_.back())
      refuse(FaultKind::value, "{}() is missing argument '{}'", function_, name);
  }
  if (used < arguments.positional.size())
    refuse(FaultKind::value, "{}() takes at most {} arguments", function_, values_.size());
  if (!arguments.named.empty())
    refuse(FaultKind::value, "{}() takes no argument '{}'", function_,
           arguments.named.front().first);
}

bool Bound::flag(size_t i, bool fallback) const { return has(i) ? truth(*values_[i]) : fallback; }

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  need_defined(*values_[i]);
  if (!values_[i]->is_integer())
    refuse(FaultKind::value, "{}() needs an integer, not {}", function_, type_name(*values_[i]));
  return values_[i]->integer();
}

std::string Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return std::string(fallback);
  need_defined(*values_[i]);
  if (!values_[i]->is(Kind::text))
    refuse(FaultKind::value, "{}() needs a string, not {}", function_, type_name(*values_[i]));
  meter().step(static_cast<int64_t>(values_[i]->text().size() / 64));
  return values_[i]->text();
}

Value attribute_of(Run& run, const Value& object, std::string_view name) {
  need_defined(object);
  if (std::optional<Value> found = find_attribute(run, object, name)) return *std::move(found);
  if (object.is(Kind::dict)) {
    run.meter().text_steps(name.size());
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return make_missing(run.meter(),
                      fmt::format("'{}' has no attribute '{}'", object_of(object), name));
}

Value item_of(Run& run, const Value& object, const Value& key) {
  need_defined(object);
  if (std::optional<Value> found = element(run.meter(), object, key)) return *std::move(found);
  if (key.is(Kind::text)) {
    if (std::optional<Value> found = find_attribute(run, object, key.text()))
      return *std::move(found);
    return make_missing(run.meter(), fmt::format("'{}' has no attribute {}", object_of(object),
                                                 brief_repr(run.meter(), key)));
  }
  return make_missing(run.meter(), fmt::format("{} has no element {}", object_of(object),
                                               brief_repr(run.meter(), key)));
}

Value call(Run& run, const Value& callee, Arguments arguments) {
  need_defined(callee);
  if (!callee.is(Kind::object) || !callee.instance().callable())
    refuse(FaultKind::value, "'{}' object is not callable", type_name(callee));
  Level level(run.meter());
  // The callee may be forgotten while it runs.
  const std::shared_ptr<const Object> kept = callee.share();
  return callee.instance().call(arguments);
}

Value apply_filter(Run& run, const Filter& filter, const Value& subject, Arguments arguments) {
  Level level(run.meter());
  return filter.apply(subject, Bound(run, filter.name, filter.parameters, std::move(arguments)));
}

bool apply_test(Run& run, const Test& test, const Value& subject, Arguments arguments) {
  Level level(run.meter());
  return test.holds(subject, Bound(run, test.name, test.parameters, std::move(arguments)));
}

}  // namespace sluice::jinja
