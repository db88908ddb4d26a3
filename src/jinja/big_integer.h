// Integers of any size, as Python has them.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/jinja/meter.h"

namespace sluice::jinja {

class BigInteger {
 public:
  static constexpr size_t kMostDigits = 4300;  // Python writes and reads no more, either

  BigInteger(int64_t value = 0);  // NOLINT(google-explicit-constructor): int64_t is a part of it
  // Digits of a base from 2 to 36, behind a sign or none; nullopt for other texts.
  static std::optional<BigInteger> read(std::string_view text, unsigned base = 10);
  static BigInteger of(double value);  // without the fraction; finite

  bool negative() const { return value_ < 0; }
  bool zero() const { return value_ == 0; }
  std::optional<int64_t> small() const;
  double real() const;                           // the nearest one; infinity where there is none
  std::string digits(unsigned base = 10) const;  // without a sign
  std::string text() const { return (negative() ? "-" : "") + digits(); }
  // The cost of computing with it.
  int64_t steps() const;

  BigInteger operator-() const;
  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const { return value_ == other.value_; }
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + -b; }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  // The quotient towards minus infinity, and what remains; `b` is not zero.
  friend std::pair<BigInteger, BigInteger> divide(const BigInteger& a, const BigInteger& b);
  // The exponent is 0 or more.
  friend BigInteger power(Meter& meter, BigInteger base, uint64_t exponent);

 private:
  using Integer = boost::multiprecision::cpp_int;

  explicit BigInteger(Integer value);  // refused where it has more than kMostDigits

  Integer value_;
};

}  // namespace sluice::jinja
