#include <algorithm>
#include <array>

#include "src/jinja/characters.h"
#include "src/jinja/functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

// Returns whether the remainder is `rest`, also for real numbers, as Python does.
bool leaves(Meter& meter, const Value& value, const Value& divisor, int64_t rest) {
  need_defined(value);
  return equal(meter, compute(meter, Arithmetic::remainder, value, divisor), Value::integer(rest));
}

bool has_only(const Value& value, Meter& meter, bool (*wanted)(char32_t),
              bool (*unwanted)(char32_t)) {
  bool any = false;
  const bool fits = all_characters(text_of(meter, value), [&](char32_t c) {
    any |= wanted(c);
    return !unwanted(c);
  });
  return any && fits;
}

bool is_defined(const Value& s, const Bound&) { return !s.is(Kind::undefined); }
bool is_undefined(const Value& s, const Bound&) { return s.is(Kind::undefined); }
bool is_none(const Value& s, const Bound&) { return s.is(Kind::none); }
bool is_true(const Value& s, const Bound&) { return s.is(Kind::boolean) && s.truth(); }
bool is_false(const Value& s, const Bound&) { return s.is(Kind::boolean) && !s.truth(); }
bool is_boolean(const Value& s, const Bound&) { return s.is(Kind::boolean); }
bool is_integer(const Value& s, const Bound&) {
  return s.is(Kind::integer) || s.digits() != nullptr;
}
bool is_float(const Value& s, const Bound&) { return s.is(Kind::real) && s.digits() == nullptr; }
bool is_number(const Value& s, const Bound&) { return s.is_number(); }
bool is_string(const Value& s, const Bound&) { return s.is(Kind::text); }
bool is_mapping(const Value& s, const Bound&) { return s.is(Kind::dict); }
bool is_escaped(const Value& s, const Bound&) { return s.is(Kind::text) && s.text_object().markup; }
bool is_sequence(const Value& s, const Bound&) {
  return s.is_sequence() || s.is(Kind::text) || s.is(Kind::dict) || s.is(Kind::undefined);
}
bool is_iterable(const Value& s, const Bound&) {
  return s.is_sequence() || s.is(Kind::text) || s.is(Kind::dict) || s.is(Kind::undefined) ||
         s.is(Kind::view) || s.is(Kind::iterator);
}
bool is_callable(const Value& s, const Bound&) {
  return s.is(Kind::undefined) || (s.is(Kind::object) && s.instance().callable());
}
bool is_odd(const Value& s, const Bound& a) { return leaves(a.meter(), s, Value::integer(2), 1); }
bool is_even(const Value& s, const Bound& a) { return leaves(a.meter(), s, Value::integer(2), 0); }
bool is_divisible(const Value& s, const Bound& a) { return leaves(a.meter(), s, a.value(0), 0); }
bool is_lower_text(const Value& s, const Bound& a) {
  return has_only(s, a.meter(), is_lower, is_upper);
}
bool is_upper_text(const Value& s, const Bound& a) {
  return has_only(s, a.meter(), is_upper, is_lower);
}
bool is_equal(const Value& s, const Bound& a) { return equal(a.meter(), s, a.value(0)); }
bool is_unequal(const Value& s, const Bound& a) { return !equal(a.meter(), s, a.value(0)); }
bool is_less(const Value& s, const Bound& a) { return less(a.meter(), s, a.value(0)); }
bool is_at_most(const Value& s, const Bound& a) { return less_equal(a.meter(), s, a.value(0)); }
bool is_greater(const Value& s, const Bound& a) { return less(a.meter(), a.value(0), s); }
bool is_at_least(const Value& s, const Bound& a) { return less_equal(a.meter(), a.value(0), s); }
bool is_in(const Value& s, const Bound& a) { return contains(a.meter(), a.value(0), s); }
bool is_same(const Value& s, const Bound& a) {
  const Value other = a.value(0);
  if (s.kind() != other.kind()) return false;
  if (s.object() != nullptr && !s.is(Kind::text) && !s.is(Kind::undefined))
    return s.object() == other.object();
  return equal(a.meter(), s, other);
}
bool is_filter(const Value& s, const Bound&) {
  return s.is(Kind::text) && find_filter(s.text()) != nullptr;
}
bool is_test(const Value& s, const Bound&) {
  return s.is(Kind::text) && find_test(s.text()) != nullptr;
}

constexpr std::array kTests = std::to_array<Test>({
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"true", "", is_true},
    {"false", "", is_false},
    {"boolean", "", is_boolean},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"escaped", "", is_escaped},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"lower", "", is_lower_text},
    {"upper", "", is_upper_text},
    {"sameas", "other", is_same},
    {"in", "seq", is_in},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"eq", "other", is_equal},
    {"==", "other", is_equal},
    {"equalto", "other", is_equal},
    {"ne", "other", is_unequal},
    {"!=", "other", is_unequal},
    {"lt", "other", is_less},
    {"<", "other", is_less},
    {"lessthan", "other", is_less},
    {"le", "other", is_at_most},
    {"<=", "other", is_at_most},
    {"gt", "other", is_greater},
    {">", "other", is_greater},
    {"greaterthan", "other", is_greater},
    {"ge", "other", is_at_least},
    {">=", "other", is_at_least},
});

}  // namespace

const Test* find_test(std::string_view name) {
  auto found = std::ranges::find(kTests, name, &Test::name);
  return found == kTests.end() ? nullptr : &*found;
}

}  // namespace sluice::jinja
