#include <algorithm>
#include <cmath>
#include <limits>

#include "src/jinja/formatting.h"
#include "src/jinja/numbers.h"
#include "src/jinja/operators.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

std::string_view sign_of(Arithmetic op) { return kSigns[static_cast<size_t>(op)]; }

[[noreturn]] void no_operator(Arithmetic op, const Value& a, const Value& b) {
  need_defined(a);
  need_defined(b);
  if (op == Arithmetic::add && a.is(Kind::text))
    refuse(FaultKind::value, "can only concatenate str (not \"{}\") to str", type_name(b));
  if (op == Arithmetic::add && a.is(Kind::list))
    refuse(FaultKind::value, "can only concatenate list (not \"{}\") to list", type_name(b));
  refuse(FaultKind::value, "unsupported operand type(s) for {}: '{}' and '{}'", sign_of(op),
         type_name(a), type_name(b));
}

int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

int64_t remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// nullopt: 64 bits do not hold the result.
std::optional<Value> compute_integers(Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Arithmetic::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::divide:
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::floor_divide:
      if (a == std::numeric_limits<int64_t>::min() && b == -1) return std::nullopt;
      result = floor_divide(a, b);
      break;
    case Arithmetic::remainder:
      result = remainder(a, b);
      break;
    case Arithmetic::power:
      return std::nullopt;
  }
  if (overflow) return std::nullopt;
  return Value::integer(result);
}

Value integer_power(Meter& meter, const BigInteger& a, const BigInteger& b) {
  if (b.negative()) {
    if (a.zero()) refuse(FaultKind::value, "0.0 cannot be raised to a negative power");
    return Value::real(std::pow(a.real(), b.real()));
  }
  const std::optional<int64_t> exponent = b.small();
  if (!exponent) refuse(FaultKind::limit, "an exponent exceeds 64 bits");
  return integer_value(meter, power(meter, a, static_cast<uint64_t>(*exponent)));
}

Value compute_large(Meter& meter, Arithmetic op, const BigInteger& a, const BigInteger& b) {
  meter.step(a.steps() * b.steps());
  switch (op) {
    case Arithmetic::add:
      return integer_value(meter, a + b);
    case Arithmetic::subtract:
      return integer_value(meter, a - b);
    case Arithmetic::multiply:
      return integer_value(meter, a * b);
    case Arithmetic::divide:
      break;
    case Arithmetic::floor_divide:
      return integer_value(meter, divide(a, b).first);
    case Arithmetic::remainder:
      return integer_value(meter, divide(a, b).second);
    case Arithmetic::power:
      return integer_power(meter, a, b);
  }
  const double quotient = a.real() / b.real();
  if (!std::isfinite(quotient)) refuse(FaultKind::value, "integer division result too large");
  return Value::real(quotient);
}

Value compute_wholes(Meter& meter, Arithmetic op, const Value& a, const Value& b) {
  const bool divides =
      op == Arithmetic::divide || op == Arithmetic::floor_divide || op == Arithmetic::remainder;
  if (divides && b.is_integer() && b.integer() == 0) refuse(FaultKind::value, "division by zero");
  if (a.is_integer() && b.is_integer()) {
    if (std::optional<Value> result = compute_integers(op, a.integer(), b.integer()))
      return *result;
  }
  return compute_large(meter, op, whole_of(meter, a), whole_of(meter, b));
}

double real_remainder(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double real_floor_divide(double a, double b) {
  const double quotient = (a - real_remainder(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value compute_reals(Arithmetic op, double a, double b) {
  const bool divides =
      op == Arithmetic::divide || op == Arithmetic::floor_divide || op == Arithmetic::remainder;
  if (divides && b == 0) refuse(FaultKind::value, "float division by zero");
  switch (op) {
    case Arithmetic::add:
      return Value::real(a + b);
    case Arithmetic::subtract:
      return Value::real(a - b);
    case Arithmetic::multiply:
      return Value::real(a * b);
    case Arithmetic::divide:
      return Value::real(a / b);
    case Arithmetic::floor_divide:
      return Value::real(real_floor_divide(a, b));
    case Arithmetic::remainder:
      return Value::real(real_remainder(a, b));
    case Arithmetic::power:
      break;
  }
  if (a == 0 && b < 0) refuse(FaultKind::value, "0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
    refuse(FaultKind::value, "{} ** {} is not a real number", show_real(a), show_real(b));
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    refuse(FaultKind::value, "the result of ** is too large");
  return Value::real(result);
}

// One of the two is markup: the other is escaped.
Value add_texts(Meter& meter, const Value& a, const Value& b) {
  const bool markup = a.text_object().markup || b.text_object().markup;
  const Value left = markup ? escape(meter, a) : a;
  const Value right = markup ? escape(meter, b) : b;
  Buffer out(meter);
  out.add(left.text());
  out.add(right.text());
  return make_text(meter, out.take(), markup);
}

Value add_sequences(Meter& meter, const Value& a, const Value& b) {
  const size_t count = a.items().size() + b.items().size();
  Charge charge(meter);
  charge.add(count * sizeof(Value));
  Values items;
  items.reserve(count);
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? make_list(meter, std::move(items))
                          : make_tuple(meter, std::move(items));
}

Value repeat(Meter& meter, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is(Kind::text)) {
    Buffer out(meter);
    out.repeat(value.text(), static_cast<uint64_t>(count));
    return make_text(meter, out.take(), value.text_object().markup);
  }
  Values items;
  const auto& source = value.items();
  Charge charge(meter);
  if (!source.empty() && count > 0) {
    if (static_cast<uint64_t>(count) > meter.limits().bytes / source.size())
      charge.add(meter.limits().bytes + 1);
    charge.add(source.size() * static_cast<uint64_t>(count) * sizeof(Value));
    items.reserve(source.size() * static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.insert(items.end(), source.begin(), source.end());
  }
  return value.is(Kind::list) ? make_list(meter, std::move(items))
                              : make_tuple(meter, std::move(items));
}

bool repeats(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}

}  // namespace

Value compute(Meter& meter, Arithmetic op, const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) return compute_wholes(meter, op, a, b);
  if (a.is_number() && b.is_number()) return compute_reals(op, a.real(), b.real());
  if (op == Arithmetic::add && a.is(Kind::text) && b.is(Kind::text)) return add_texts(meter, a, b);
  const bool lists = a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple));
  if (op == Arithmetic::add && lists) return add_sequences(meter, a, b);
  if (op == Arithmetic::multiply && repeats(a) && b.is_integer())
    return repeat(meter, a, b.integer());
  if (op == Arithmetic::multiply && a.is_integer() && repeats(b))
    return repeat(meter, b, a.integer());
  if (op == Arithmetic::remainder && a.is(Kind::text)) return percent_format(meter, a, b);
  no_operator(op, a, b);
}

Value negative(Meter& meter, const Value& value) {
  if (is_whole(value)) return integer_value(meter, -whole_of(meter, value));
  if (value.is(Kind::real)) return Value::real(-value.real());
  need_defined(value);
  refuse(FaultKind::value, "bad operand type for unary -: '{}'", type_name(value));
}

Value positive(const Value& value) {
  if (value.is(Kind::real)) return value;
  if (value.is_integer()) return Value::integer(value.integer());
  need_defined(value);
  refuse(FaultKind::value, "bad operand type for unary +: '{}'", type_name(value));
}

}  // namespace sluice::jinja
