#include "src/jinja/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/jinja/characters.h"
#include "src/jinja/fault.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

std::string with_sign(bool negative, const FormatSpec& spec, std::string digits) {
  if (negative) return fmt::format("-{}", digits);
  if (spec.sign == '+') return fmt::format("+{}", digits);
  if (spec.sign == ' ') return fmt::format(" {}", digits);
  return digits;
}

// Groups of three before the point (four for other bases than ten).
std::string grouped(std::string digits, const FormatSpec& spec, size_t group) {
  if (spec.grouping == '\0') return digits;
  size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits.size();
  while (end > group) digits.insert(end -= group, 1, spec.grouping);
  return digits;
}

std::string print_real(double value, char type, int precision, bool alternate) {
  const std::string format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), format.c_str(), precision, value);
  text.pop_back();
  return text;
}

std::string character_of(const BigInteger& value) {
  const std::optional<int64_t> code = value.small();
  if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
    refuse(FaultKind::value, "{} is not a character", value.text());
  std::string character;
  append_utf8(static_cast<char32_t>(*code), character);
  return character;
}

}  // namespace

std::string integer_digits(const BigInteger& value, const FormatSpec& spec) {
  const auto in_base = [&](unsigned base, std::string_view prefix) {
    std::string digits = value.digits(base);
    if (spec.type == 'X') digits = upper(digits);
    return with_sign(value.negative(), spec,
                     (spec.alternate ? std::string(prefix) : "") +
                         grouped(std::move(digits), spec, base == 10 ? 3 : 4));
  };
  switch (spec.type) {
    case 'b':
      return in_base(2, "0b");
    case 'o':
      return in_base(8, "0o");
    case 'x':
      return in_base(16, "0x");
    case 'X':
      return in_base(16, "0X");
    case 'c':
      return character_of(value);
    default:
      return in_base(10, "");
  }
}

std::string real_digits(double value, const FormatSpec& spec) {
  constexpr int64_t kLongest = 400;
  if (spec.precision > kLongest)
    refuse(FaultKind::limit, "a number with more than {} places", kLongest);
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value);
  const bool capital = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(size)) {
    std::string text = std::isnan(size) ? "nan" : "inf";
    if (spec.type == '%') text += "%";
    return with_sign(negative, spec, capital ? upper(text) : text);
  }
  if (spec.type == '\0' && spec.precision < 0)
    return with_sign(negative, spec, grouped(show_real(size), spec, 3));
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string text;
  if (spec.type == '%') {
    text = print_real(size * 100, 'f', precision, spec.alternate) + "%";
  } else if (spec.type == '\0') {
    text = print_real(size, 'g', std::max(precision, 1), spec.alternate);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
  } else {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    const bool general = type == 'g' || type == 'G';
    text = print_real(size, type, general ? std::max(precision, 1) : precision, spec.alternate);
  }
  return with_sign(negative, spec, grouped(std::move(text), spec, 3));
}

void pad(std::string_view text, const FormatSpec& spec, char standard_align, Buffer& out) {
  const auto size = static_cast<int64_t>(character_count(text));
  if (spec.width <= size) return out.add(text);
  const char align = spec.align == '\0' ? standard_align : spec.align;
  const int64_t missing = spec.width - size;
  auto fill = [&](int64_t count) { out.repeat(spec.fill, static_cast<uint64_t>(count)); };
  if (align == '=') {
    size_t prefix =
        !text.empty() && std::string_view("+- ").find(text[0]) != std::string_view::npos;
    const std::string_view rest = text.substr(prefix);
    if (rest.size() > 1 && rest[0] == '0' &&
        std::string_view("xXob").find(rest[1]) != std::string_view::npos)
      prefix += 2;
    out.add(text.substr(0, prefix));
    fill(missing);
    return out.add(text.substr(prefix));
  }
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  fill(left);
  out.add(text);
  fill(missing - left);
}

}  // namespace sluice::jinja
