// Numbers within bounds, digit by digit.
#include <limits>
#include <string>
#include <utility>

#include "src/grammar/json_text.h"

namespace sluice::grammar {
namespace {

constexpr uint32_t kMostDigits = 20;
constexpr uint32_t kMostExponent = 2;

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

}  // namespace

Expr JsonParts::digits(uint32_t low, uint32_t high) {
  return builder_.repeat(builder_.byte_range('0', '9'), low, high);
}

// -0.5 is a number; an integer is not -0.
Expr JsonParts::make_number() {
  GrammarBuilder& b = builder_;
  Expr whole =
      b.choice({b.text("0"), b.sequence({b.byte_range('1', '9'), digits(0, kMostDigits - 1)})});
  Expr fraction = b.sequence({b.text("."), digits(1, kMostDigits)});
  ByteSet e, sign;
  e.set('e').set('E');
  sign.set('+').set('-');
  Expr exponent = b.sequence({b.bytes(e), b.optional(b.bytes(sign)), digits(1, kMostExponent)});
  return b.sequence({b.optional(b.text("-")), whole, b.optional(fraction), b.optional(exponent)});
}

Expr JsonParts::integer() {
  GrammarBuilder& b = builder_;
  Expr more =
      b.sequence({b.optional(b.text("-")), b.byte_range('1', '9'), digits(0, kMostDigits - 1)});
  return b.choice({b.text("0"), more});
}

// Numbers of as many digits as both bounds, from `low` to `high`.
Expr JsonParts::between_of_length(std::string_view low, std::string_view high) {
  GrammarBuilder& b = builder_;
  if (low.empty()) return b.text({});
  const auto rest = static_cast<uint32_t>(low.size() - 1);
  const bool from_zero = low.find_first_not_of('0') == std::string_view::npos;
  const bool to_nine = high.find_first_not_of('9') == std::string_view::npos;
  if (from_zero && to_nine) return digits(rest + 1, rest + 1);
  const std::string nines(rest, '9'), zeros(rest, '0');
  if (low[0] == high[0])
    return b.sequence({b.text(low.substr(0, 1)), between_of_length(low.substr(1), high.substr(1))});
  std::vector<Expr> parts;
  parts.push_back(b.sequence({b.text(low.substr(0, 1)), between_of_length(low.substr(1), nines)}));
  if (low[0] + 1 < high[0]) {
    parts.push_back(
        b.sequence({b.byte_range(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                    digits(rest, rest)}));
  }
  parts.push_back(
      b.sequence({b.text(high.substr(0, 1)), between_of_length(zeros, high.substr(1))}));
  return b.choice(std::move(parts));
}

// Without leading zeros.
Expr JsonParts::between(std::string_view low, std::string_view high) {
  std::vector<Expr> lengths;
  for (size_t size = low.size(); size <= high.size(); ++size) {
    std::string from(size, '0');
    from[0] = '1';
    if (size == low.size()) from = low;
    std::string to = size == high.size() ? std::string(high) : std::string(size, '9');
    lengths.push_back(between_of_length(from, to));
  }
  return builder_.choice(std::move(lengths));
}

Expr JsonParts::integer(const NumberRange& range) {
  using Limits = std::numeric_limits<int64_t>;
  GrammarBuilder& b = builder_;
  const std::string most(kMostDigits, '9');
  std::optional<int64_t> low = range.low, high = range.high;
  if (low && range.without_low && *low == Limits::max()) return b.choice({});
  if (high && range.without_high && *high == Limits::min()) return b.choice({});
  if (low && range.without_low) ++*low;
  if (high && range.without_high) --*high;
  if (low && high && *low > *high) return b.choice({});
  std::vector<Expr> parts;
  if (!low || *low < 0) {
    const uint64_t nearest = high && *high < 0 ? magnitude(*high) : 1;
    const std::string farthest = low ? std::to_string(magnitude(*low)) : most;
    parts.push_back(b.sequence({b.text("-"), between(std::to_string(nearest), farthest)}));
  }
  if (!high || *high >= 0) {
    const uint64_t nearest = low && *low > 0 ? magnitude(*low) : 0;
    const std::string farthest = high ? std::to_string(magnitude(*high)) : most;
    parts.push_back(between(std::to_string(nearest), farthest));
  }
  return b.choice(std::move(parts));
}

// Numbers from `low` to `high`, neither negative, without an exponent.
Expr JsonParts::reals(uint64_t low, std::optional<uint64_t> high, bool without_low,
                      bool without_high) {
  GrammarBuilder& b = builder_;
  const std::string most(kMostDigits, '9');
  std::vector<Expr> parts;
  Expr fraction = b.optional(b.sequence({b.text("."), digits(1, kMostDigits)}));
  uint64_t next = low;
  if (without_low && (!high || low < *high)) {  // behind the point comes more than zeros
    Expr above = b.sequence({digits(0, kMostDigits - 1), b.byte_range('1', '9')});
    parts.push_back(b.sequence({b.text(std::to_string(low)), b.text("."), above}));
    ++next;
  }
  if (!high) {
    parts.push_back(b.sequence({between(std::to_string(next), most), fraction}));
  } else if (next < *high) {
    parts.push_back(
        b.sequence({between(std::to_string(next), std::to_string(*high - 1)), fraction}));
  }
  if (high && !without_high && !(without_low && low == *high)) {
    Expr zeros = b.sequence({b.text("."), b.repeat(b.text("0"), 1, kMostDigits)});
    parts.push_back(b.sequence({b.text(std::to_string(*high)), b.optional(zeros)}));
  }
  return b.choice(std::move(parts));
}

Expr JsonParts::number(const NumberRange& range) {
  if (!range.low && !range.high) return number();
  std::vector<Expr> parts;
  auto part_of = [](std::optional<int64_t> bound) {
    return bound ? std::optional<uint64_t>(magnitude(*bound)) : std::nullopt;
  };
  if (!range.low || *range.low < 0) {
    const bool to_zero = !range.high || *range.high > 0;
    const uint64_t nearest = to_zero ? 0 : magnitude(*range.high);
    parts.push_back(builder_.sequence(
        {builder_.text("-"),
         reals(nearest, part_of(range.low), !to_zero && range.without_high, range.without_low)}));
  }
  if (!range.high || *range.high >= 0) {
    const bool from_zero = !range.low || *range.low < 0;
    const uint64_t nearest = from_zero ? 0 : magnitude(*range.low);
    std::optional<uint64_t> farthest = part_of(range.high);
    if (!farthest || nearest <= *farthest)
      parts.push_back(
          reals(nearest, farthest, !from_zero && range.without_low, range.without_high));
  }
  return builder_.choice(std::move(parts));
}

}  // namespace sluice::grammar
