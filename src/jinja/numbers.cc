#include "src/jinja/numbers.h"

#include <charconv>
#include <cstdlib>
#include <limits>
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

}  // namespace

std::optional<int64_t> read_integer(std::string_view text, int base) {
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
  uint64_t value = 0;
  auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  if (end != rest.data() + rest.size() || status == std::errc::invalid_argument)
    return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (status != std::errc{} || value > kMost)
    refuse(FaultKind::limit, "an integer exceeds 64 bits");
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
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

}  // namespace sluice::jinja
