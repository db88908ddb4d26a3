#include "src/grammar/source.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/text/utf8.h"

namespace sluice::grammar {
Source::Source(std::string_view text, std::string where, std::string_view what)
    : text_(text), where_(std::move(where)), what_(what) {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorKind::refused, "{}: {} has {} bytes, but {} is the most", where_, what_, text.size(),
         kMaxTextBytes);
  }
  if (to_valid_utf8(text) != text) fail(ErrorKind::refused, "{}: {} is not UTF-8", where_, what_);
}

bool Source::take(std::string_view text) {
  if (!next_is(text)) return false;
  at_ += text.size();
  return true;
}

char32_t Source::peek() const { return at_end() ? 0 : utf8_char_at(text_, at_).code_point; }

char32_t Source::take_char() {
  if (at_end()) refuse("it ends too early");
  const Utf8Char c = utf8_char_at(text_, at_);
  at_ += static_cast<size_t>(c.bytes);
  return c.code_point;
}

bool Source::take_number(uint32_t& number) {
  const size_t begin = at_;
  uint64_t value = 0;
  for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
    value =
        std::min<uint64_t>(value * 10 + static_cast<uint64_t>(text_[at_] - '0'), kUnlimited - 1);
  number = static_cast<uint32_t>(value);
  return at_ > begin;
}

char32_t Source::take_hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = hex_digit(peek());
    if (digit < 0) refuse("a hexadecimal escape is malformed");
    value = value << 4 | static_cast<char32_t>(digit);
    ++at_;
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
    refuse("a hexadecimal escape is not a character");
  return value;
}

void Source::refuse(std::string_view why) const {
  fail(ErrorKind::refused, "{}: {}, byte {}: {}", where_, what_, at_, why);
}

}  // namespace sluice::grammar
