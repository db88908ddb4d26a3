// Numbers as text, with a width, a sign, a precision.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/jinja/big_integer.h"
#include "src/jinja/buffer.h"

namespace sluice::jinja {

struct FormatSpec {
  std::string_view fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // + - or space
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';  // , or _
  int64_t precision = -1;
  char type = '\0';
};

// Returns the digits without padding. `type` is one of d b o x X c n, or e E f F g G %.
std::string integer_digits(const BigInteger& value, const FormatSpec& spec);
std::string real_digits(double value, const FormatSpec& spec);

// `text` to the width; `prefix` is a sign that stays in front of the fill where that is '='.
void pad(std::string_view text, const FormatSpec& spec, char standard_align, Buffer& out);

}  // namespace sluice::jinja
