#include "src/jinja/big_integer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "src/jinja/fault.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kWordBits = 32;  // of a step

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'z' ? static_cast<unsigned>(low - 'a') + 10 : 99;
}

int64_t bits_of(const boost::multiprecision::cpp_int& value) {
  return value == 0 ? 0 : static_cast<int64_t>(msb(abs(value))) + 1;
}

}  // namespace

BigInteger::BigInteger(int64_t value) : value_(value) {}

BigInteger::BigInteger(Integer value) : value_(std::move(value)) {
  static const Integer kBound = pow(Integer(10), kMostDigits);
  if (abs(value_) >= kBound) refuse(FaultKind::limit, "an integer exceeds {} digits", kMostDigits);
}

std::optional<BigInteger> BigInteger::read(std::string_view text, unsigned base) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  if (std::ranges::any_of(text, [&](char c) { return digit_of(c) >= base; })) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.size() > kMostDigits)
    refuse(FaultKind::limit, "an integer exceeds {} digits", kMostDigits);
  Integer value;
  for (char c : text) value = value * base + digit_of(c);
  if (negative) value = -value;
  return BigInteger(std::move(value));
}

BigInteger BigInteger::of(double value) { return BigInteger(Integer(value)); }

std::optional<int64_t> BigInteger::small() const {
  if (value_ < std::numeric_limits<int64_t>::min() || value_ > std::numeric_limits<int64_t>::max())
    return std::nullopt;
  return value_.convert_to<int64_t>();
}

double BigInteger::real() const { return std::strtod(text().c_str(), nullptr); }

std::string BigInteger::digits(unsigned base) const {
  if (zero()) return "0";
  uint32_t unit = base;  // several digits at once
  int count = 1;
  for (; uint64_t{unit} * base <= std::numeric_limits<uint32_t>::max(); ++count) unit *= base;
  std::string text;
  for (Integer rest = abs(value_); rest > 0;) {
    auto part = integer_modulus(rest, unit);
    rest /= unit;
    for (int i = 0; i < count && (part > 0 || rest > 0); ++i, part /= base)
      text += "0123456789abcdefghijklmnopqrstuvwxyz"[part % base];
  }
  return {text.rbegin(), text.rend()};
}

int64_t BigInteger::steps() const { return 1 + (bits_of(value_) + kWordBits - 1) / kWordBits; }

BigInteger BigInteger::operator-() const { return BigInteger(Integer(-value_)); }

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  return value_.compare(other.value_) <=> 0;
}

BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  return BigInteger(BigInteger::Integer(a.value_ + b.value_));
}

BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  return BigInteger(BigInteger::Integer(a.value_ * b.value_));
}

std::pair<BigInteger, BigInteger> divide(const BigInteger& a, const BigInteger& b) {
  BigInteger::Integer quotient, rest;
  divide_qr(a.value_, b.value_, quotient, rest);
  if (rest != 0 && a.negative() != b.negative()) {
    --quotient;
    rest += b.value_;
  }
  return {BigInteger(std::move(quotient)), BigInteger(std::move(rest))};
}

BigInteger power(Meter& meter, BigInteger base, uint64_t exponent) {
  BigInteger result(1);
  for (; exponent > 0; exponent >>= 1) {
    meter.step(base.steps() * base.steps() / 8);
    if ((exponent & 1) != 0) result = result * base;
    if (exponent > 1) base = base * base;
  }
  return result;
}

}  // namespace sluice::jinja
