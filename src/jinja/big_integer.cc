#include "src/jinja/big_integer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "src/jinja/fault.h"

namespace sluice::jinja {
namespace {

constexpr int kBits = 32;
constexpr size_t kMostWords = BigInteger::kMostDigits * 10 / 3 / kBits + 1;

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'z' ? static_cast<unsigned>(low - 'a') + 10 : 99;
}

}  // namespace

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  for (; size > 0; size >>= kBits) words_.push_back(static_cast<uint32_t>(size));
}

BigInteger::BigInteger(Words words, bool negative) : words_(std::move(words)) {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
  negative_ = negative && !words_.empty();
  if (words_.size() > kMostWords)
    refuse(FaultKind::limit, "an integer exceeds {} digits", kMostDigits);
}

std::optional<BigInteger> BigInteger::read(std::string_view text, unsigned base) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  if (std::ranges::any_of(text, [&](char c) { return digit_of(c) >= base; })) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.size() > kMostDigits)
    refuse(FaultKind::limit, "an integer exceeds {} digits", kMostDigits);
  Words words;
  for (char c : text) multiply_add(words, base, digit_of(c));
  return BigInteger(std::move(words), negative);
}

BigInteger BigInteger::of(double value) {
  int exponent = 0;
  constexpr int kDigits = std::numeric_limits<double>::digits;
  const double fraction = std::frexp(std::trunc(value), &exponent);
  BigInteger result(static_cast<int64_t>(std::ldexp(fraction, std::min(exponent, kDigits))));
  for (int i = kDigits; i < exponent; ++i) multiply_add(result.words_, 2, 0);
  return result;
}

std::optional<int64_t> BigInteger::small() const {
  if (words_.size() > 2) return std::nullopt;
  uint64_t size = 0;
  for (size_t i = words_.size(); i-- > 0;) size = size << kBits | words_[i];
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (size > kMost + (negative_ ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - size : size);
}

double BigInteger::real() const { return std::strtod(text().c_str(), nullptr); }

std::string BigInteger::digits(unsigned base) const {
  if (zero()) return "0";
  std::string text;
  for (Words rest = words_; !rest.empty();) {
    // A word holds several digits at once.
    uint32_t unit = base, part = 0;
    int count = 1;
    for (; uint64_t{unit} * base <= std::numeric_limits<uint32_t>::max(); ++count) unit *= base;
    part = divide_by(rest, unit);
    for (; count > 0 && (part > 0 || !rest.empty()); --count, part /= base)
      text += "0123456789abcdefghijklmnopqrstuvwxyz"[part % base];
  }
  return {text.rbegin(), text.rend()};
}

BigInteger BigInteger::operator-() const { return {words_, !negative_}; }

std::strong_ordering BigInteger::order(const Words& a, const Words& b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  for (size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] <=> b[i];
  return std::strong_ordering::equal;
}

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  if (negative_ != other.negative_) return other.negative_ <=> negative_;
  return negative_ ? order(other.words_, words_) : order(words_, other.words_);
}

BigInteger::Words BigInteger::sum(const Words& a, const Words& b) {
  Words words;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry > 0; ++i) {
    carry += (i < a.size() ? a[i] : 0ULL) + (i < b.size() ? b[i] : 0ULL);
    words.push_back(static_cast<uint32_t>(carry));
    carry >>= kBits;
  }
  return words;
}

BigInteger::Words BigInteger::difference(const Words& a, const Words& b) {
  Words words;
  uint64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t less = borrow + (i < b.size() ? b[i] : 0);
    words.push_back(static_cast<uint32_t>(a[i] - less));
    borrow = a[i] < less ? 1 : 0;
  }
  return words;
}

void BigInteger::multiply_add(Words& words, uint32_t factor, uint32_t more) {
  uint64_t carry = more;
  for (uint32_t& word : words) {
    carry += uint64_t{word} * factor;
    word = static_cast<uint32_t>(carry);
    carry >>= kBits;
  }
  if (carry > 0) words.push_back(static_cast<uint32_t>(carry));
}

uint32_t BigInteger::divide_by(Words& words, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = words.size(); i-- > 0;) {
    rest = rest << kBits | words[i];
    words[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  while (!words.empty() && words.back() == 0) words.pop_back();
  return static_cast<uint32_t>(rest);
}

BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  if (a.negative_ == b.negative_) return {BigInteger::sum(a.words_, b.words_), a.negative_};
  if (BigInteger::order(a.words_, b.words_) < 0)
    return {BigInteger::difference(b.words_, a.words_), b.negative_};
  return {BigInteger::difference(a.words_, b.words_), a.negative_};
}

BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  BigInteger::Words words(a.words_.size() + b.words_.size());
  for (size_t i = 0; i < a.words_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t k = 0; k < b.words_.size() || carry > 0; ++k) {
      carry += words[i + k] + uint64_t{a.words_[i]} * (k < b.words_.size() ? b.words_[k] : 0);
      words[i + k] = static_cast<uint32_t>(carry);
      carry >>= kBits;
    }
  }
  return {std::move(words), a.negative_ != b.negative_};
}

// Bit by bit, from the highest one.
std::pair<BigInteger, BigInteger> divide(const BigInteger& a, const BigInteger& b) {
  BigInteger::Words quotient(a.words_.size()), rest;
  for (size_t i = a.words_.size(); i-- > 0;) {
    for (int bit = kBits; bit-- > 0;) {
      BigInteger::multiply_add(rest, 2, a.words_[i] >> bit & 1);
      if (BigInteger::order(rest, b.words_) < 0) continue;
      rest = BigInteger::difference(rest, b.words_);
      while (!rest.empty() && rest.back() == 0) rest.pop_back();
      quotient[i] |= 1U << bit;
    }
  }
  BigInteger whole(std::move(quotient), a.negative_ != b.negative_);
  BigInteger remainder(std::move(rest), a.negative_);
  if (!remainder.zero() && a.negative_ != b.negative_)
    return {whole - BigInteger(1), remainder + b};
  return {std::move(whole), std::move(remainder)};
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
