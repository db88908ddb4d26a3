#include "src/jinja/numbers.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "src/jinja/characters.h"
#include "src/jinja/fault.h"

namespace sluice::jinja {
namespace {

// Removes single underscores between digits; nullopt if there are others.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    auto digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  return plain;
}

int sign(auto order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

// The decimal digits of the largest integer that is not above a number, behind its sign.
std::string floor_digits(const Value& v) {
  if (v.digits() != nullptr) return *v.digits();
  return v.is_integer() ? std::to_string(v.integer()) : BigInteger::of(std::floor(v.real())).text();
}

// Compares such digits as texts, which takes no more than reading them.
int order_digits(std::string_view a, std::string_view b) {
  const bool below = a.starts_with('-');
  if (below != b.starts_with('-')) return below ? -1 : 1;
  const int order = a.size() != b.size() ? sign(a.size() <=> b.size()) : sign(a.compare(b) <=> 0);
  return below ? -order : order;
}

}  // namespace

std::optional<BigInteger> read_integer(std::string_view text, int base) {
  text = strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty() || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  std::string_view rest = *digits;
  auto prefixed = [&](char mark, int of) {
    if (rest.size() < 3 || rest[0] != '0' || (rest[1] | 0x20) != mark) return false;
    if (base != 0 && base != of) return false;
    rest.remove_prefix(2);
    base = of;
    return true;
  };
  if (!prefixed('x', 16) && !prefixed('o', 8) && !prefixed('b', 2) && base == 0) base = 10;
  if (rest.starts_with('-') || rest.starts_with('+')) return std::nullopt;  // a second sign
  const std::optional<BigInteger> value = BigInteger::read(rest, static_cast<unsigned>(base));
  return value && negative ? -*value : value;
}

std::optional<double> read_real(std::string_view text) {
  text = strip(text);
  std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  const std::string low = lower(*plain);
  const std::string_view word = std::string_view(low).substr(low[0] == '-' || low[0] == '+');
  if (word == "inf" || word == "infinity" || word == "nan")
    return std::strtod(low.c_str(), nullptr);
  if (low.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(low.c_str(), &end);
  if (end != low.c_str() + low.size()) return std::nullopt;
  return value;
}

Value integer_value(Meter& meter, const BigInteger& integer) {
  if (const std::optional<int64_t> small = integer.small()) return Value::integer(*small);
  meter.step(integer.steps() * integer.steps() / 8);
  return Value::large_integer(integer.real(), make_text(meter, integer.text()));
}

bool is_whole(const Value& value) { return value.is_integer() || value.digits() != nullptr; }

BigInteger whole_of(Meter& meter, const Value& value) {
  if (value.is_integer()) return {value.integer()};
  const BigInteger whole = BigInteger::read(*value.digits()).value_or(BigInteger());
  meter.step(whole.steps() * whole.steps() / 8);
  return whole;
}

int order_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return sign(a.integer() <=> b.integer());
  if (!is_whole(a) && !is_whole(b)) return sign(a.real() <=> b.real());
  for (const Value* v : {&a, &b}) {
    if (!is_whole(*v) && std::isinf(v->real())) return (v->real() < 0) == (v == &a) ? -1 : 1;
  }
  if (const int order = order_digits(floor_digits(a), floor_digits(b)); order != 0) return order;
  const auto fraction = [](const Value& v) {
    return is_whole(v) ? 0.0 : v.real() - std::floor(v.real());
  };
  return sign(fraction(a) <=> fraction(b));
}

}  // namespace sluice::jinja
