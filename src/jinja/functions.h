// Filters, tests, functions and methods: what a template can call, in tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/jinja/value.h"

namespace sluice::jinja {

class Run;

// Arguments of one call, in the order of the parameters.
class Bound {
 public:
  // `parameters`: names with spaces between; "=" behind one that may be left out. Behind "*" all
  // further arguments are taken as they are. Fault that names `function` for others.
  Bound(Run& run, std::string_view function, std::string_view parameters, Arguments arguments);

  Run& run() const { return run_; }
  Meter& meter() const;
  bool has(size_t i) const { return values_[i].has_value(); }
  // The argument, or what stands for one that was left out.
  Value value(size_t i) const { return values_[i].value_or(Value::none()); }
  bool is_none(size_t i) const { return !has(i) || values_[i]->is(Kind::none); }
  bool flag(size_t i, bool fallback = false) const;
  int64_t integer(size_t i, int64_t fallback) const;
  std::string text(size_t i, std::string_view fallback) const;  // Fault for other types
  const Arguments& rest() const { return rest_; }               // behind "*"

 private:
  void bind(std::string_view parameters, Arguments& arguments);
  std::optional<Value> next_argument(std::string_view name, Arguments& arguments, size_t& used);

  Run& run_;
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
  Arguments rest_;
};

struct Filter {
  std::string_view name;
  std::string_view parameters;
  Value (*apply)(const Value& subject, const Bound& arguments);
};

struct Test {
  std::string_view name;
  std::string_view parameters;
  bool (*holds)(const Value& subject, const Bound& arguments);
};

const Filter* find_filter(std::string_view name);  // null: there is none
const Test* find_test(std::string_view name);

// A method of a string, a list, a tuple or a dict. nullopt: there is none of that name.
std::optional<Value> find_method(Run& run, const Value& subject, std::string_view name);

// Returns a function that templates have beside their variables: range, dict, namespace,
// raise_exception, ...
std::optional<Value> find_function(Run& run, std::string_view name);

// Value of an attribute or, failing that, an element; undefined where there is neither. And the
// other way round.
Value attribute_of(Run& run, const Value& object, std::string_view name);
Value item_of(Run& run, const Value& object, const Value& key);

Value call(Run& run, const Value& callee, Arguments arguments);
Value apply_filter(Run& run, const Filter& filter, const Value& subject, Arguments arguments);
bool apply_test(Run& run, const Test& test, const Value& subject, Arguments arguments);

}  // namespace sluice::jinja
