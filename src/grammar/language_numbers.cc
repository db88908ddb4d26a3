// Numbers as languages: how they compare to a bound, and what they are multiples of.
#include <algorithm>

#include "src/grammar/languages.h"

namespace sluice::grammar {
namespace {

// The state of a number beside its bound: `size` digits before the point or, with `point`, behind
// it, which are less, equal or more so far.
struct Progress {
  enum Order : uint8_t { less, equal, more };
  uint32_t size = 0;
  bool point = false;
  Order order = equal;

  uint32_t packed() const { return size << 3 | (point ? 4U : 0U) | order; }
  static Progress of(uint32_t packed) {
    return {packed >> 3, (packed & 4U) != 0, static_cast<Order>(packed & 3U)};
  }
};

Progress::Order order_of(char32_t digit, char bound) {
  const auto other = static_cast<char32_t>(bound);
  return digit < other ? Progress::less : digit > other ? Progress::more : Progress::equal;
}

// Compares the digits before the point.
Progress::Order whole_order(const Progress& p, const Decimal& bound) {
  if (p.size != bound.whole.size())
    return p.size < bound.whole.size() ? Progress::less : Progress::more;
  return p.order;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

uint32_t power_of_ten(uint32_t exponent, uint32_t modulus) {
  uint64_t power = 1;
  for (uint32_t i = 0; i < exponent; ++i) power = power * 10 % modulus;
  return static_cast<uint32_t>(power % modulus);
}

constexpr uint32_t kBeforePoint = UINT32_MAX;

}  // namespace

Term Languages::compared(Compared how, const Decimal& bound) {
  auto known = std::ranges::find(bounds_, bound);
  if (known == bounds_.end()) known = bounds_.insert(bounds_.end(), bound);
  return add({.kind = Kind::compared,
              .a = static_cast<uint32_t>(how),
              .b = static_cast<uint32_t>(known - bounds_.begin()),
              .c = Progress{}.packed()});
}

Term Languages::multiples(uint32_t divisor, uint32_t places) {
  return add({.kind = Kind::multiples, .a = divisor, .b = places, .c = kBeforePoint});
}

Term Languages::derive_compared(const Node& node, char32_t c) {
  const Decimal& bound = bounds_[node.b];
  Progress p = Progress::of(node.c);
  if (c == '.') {
    if (p.point) return nothing();
    p = {.size = 0, .point = true, .order = whole_order(p, bound)};
  } else if (!is_digit(c)) {
    return nothing();
  } else {
    const std::string& digits = p.point ? bound.fraction : bound.whole;
    const char other = p.size < digits.size() ? digits[p.size] : '0';
    if (p.order == Progress::equal && (p.point || p.size < digits.size()))
      p.order = order_of(c, other);
    p.size =
        std::min<uint32_t>(p.size + 1, static_cast<uint32_t>(digits.size()) + (p.point ? 0 : 1));
    if (!p.point && p.size > digits.size()) p.order = Progress::more;
    if (p.point && p.order != Progress::equal) p.size = 0;
  }
  Node next = node;
  next.c = p.packed();
  return add(std::move(next));
}

// Returns whether a number may end here, compared or a multiple.
bool Languages::ends_compared(const Node& node) const {
  if (node.kind == Kind::multiples) {
    const uint32_t left = node.c == kBeforePoint ? node.b : node.c;
    return uint64_t{node.d} * power_of_ten(left, node.a) % node.a == 0;
  }
  const Decimal& bound = bounds_[node.b];
  const Progress p = Progress::of(node.c);
  Progress::Order order = p.point ? p.order : whole_order(p, bound);
  const std::string_view rest = std::string_view(bound.fraction).substr(p.point ? p.size : 0);
  if (order == Progress::equal && rest.find_first_not_of('0') != rest.npos) order = Progress::less;
  switch (static_cast<Compared>(node.a)) {
    case Compared::less:
      return order == Progress::less;
    case Compared::at_most:
      return order != Progress::more;
    case Compared::at_least:
      return order != Progress::less;
    case Compared::more:
      return order == Progress::more;
  }
  return false;
}

Term Languages::derive_multiple(const Node& node, char32_t c) {
  Node next = node;
  if (c == '.') {
    if (node.c != kBeforePoint) return nothing();
    next.c = node.b;
    return add(std::move(next));
  }
  if (!is_digit(c) || (node.c == 0 && c != '0')) return nothing();
  if (node.c != 0) next.d = static_cast<uint32_t>((uint64_t{node.d} * 10 + (c - '0')) % node.a);
  if (node.c != 0 && node.c != kBeforePoint) --next.c;
  return add(std::move(next));
}

}  // namespace sluice::grammar
