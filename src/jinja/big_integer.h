// Integers of any size, as Python has them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/meter.h"

namespace sluice::jinja {

class BigInteger {
 public:
  static constexpr size_t kMostDigits = 4300;  // Python writes and reads no more, either

  BigInteger(int64_t value = 0);  // NOLINT(google-explicit-constructor): int64_t is a part of it
  // Digits of a base from 2 to 36, behind a sign or none; nullopt for other texts.
  static std::optional<BigInteger> read(std::string_view text, unsigned base = 10);
  static BigInteger of(double value);  // without the fraction; finite

  bool negative() const { return negative_; }
  bool zero() const { return words_.empty(); }
  std::optional<int64_t> small() const;
  double real() const;                           // the nearest one; infinity where there is none
  std::string digits(unsigned base = 10) const;  // without a sign
  std::string text() const { return (negative_ ? "-" : "") + digits(); }
  // The cost of computing with it.
  int64_t steps() const { return 1 + static_cast<int64_t>(words_.size()); }

  BigInteger operator-() const;
  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const = default;
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + -b; }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  // The quotient towards minus infinity, and what remains; `b` is not zero.
  friend std::pair<BigInteger, BigInteger> divide(const BigInteger& a, const BigInteger& b);
  // The exponent is 0 or more.
  friend BigInteger power(Meter& meter, BigInteger base, uint64_t exponent);

 private:
  using Words = std::vector<uint32_t>;  // the lowest one first; none above the highest that counts

  BigInteger(Words words, bool negative);
  static std::strong_ordering order(const Words& a, const Words& b);
  static Words sum(const Words& a, const Words& b);
  static Words difference(const Words& a, const Words& b);  // a is not below b
  static uint32_t divide_by(Words& words, uint32_t divisor);
  static void multiply_add(Words& words, uint32_t factor, uint32_t more);

  bool negative_ = false;
  Words words_;
};

}  // namespace sluice::jinja
