#include "src/jinja/string_literal.h"

#include "src/jinja/fault.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
}

class LiteralText {
 public:
  explicit LiteralText(std::string_view text) : text_(text) {}

  std::string read() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        escape();
      } else {
        flush_surrogate();
        out_ += text_[at_++];
      }
    }
    flush_surrogate();
    return std::move(out_);
  }

 private:
  void put(char32_t c) {
    if (high_ != 0 && c >= 0xDC00 && c <= 0xDFFF) {
      append_utf8(0x10000 + ((high_ - 0xD800) << 10) + (c - 0xDC00), out_);
      high_ = 0;
      return;
    }
    flush_surrogate();
    if (c >= 0xD800 && c <= 0xDBFF) {
      high_ = c;
    } else if (c >= 0xDC00 && c <= 0xDFFF) {
      out_ += kReplacementCharacter;
    } else {
      append_utf8(c, out_);
    }
  }
  // A half of a pair without the other is no character.
  void flush_surrogate() {
    if (high_ != 0) out_ += kReplacementCharacter;
    high_ = 0;
  }

  void escape() {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[at_ + 1];
    at_ += 2;
    if (c == '\n') return flush_surrogate();
    if (size_t i = kLetters.find(c); i != std::string_view::npos)
      return put(static_cast<unsigned char>(kMeanings[i]));
    if (c == 'x') return digits(2);
    if (c == 'u') return digits(4);
    if (c == 'U') return digits(8);
    if (c == 'N') refuse(FaultKind::syntax, "\\N{{...}} in a string is not supported");
    if (c >= '0' && c <= '7') return octal();
    flush_surrogate();
    out_ += '\\';
    --at_;  // the character may have several bytes
    out_ += text_[at_++];
  }

  void digits(size_t count) {
    char32_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
      if (at_ == text_.size() || digit_of(text_[at_]) > 15)
        refuse(FaultKind::syntax, "an escape in a string needs {} hexadecimal digits", count);
      value = value * 16 + static_cast<char32_t>(digit_of(text_[at_]));
    }
    if (value > 0x10FFFF) refuse(FaultKind::syntax, "an escape in a string is not a character");
    put(value);
  }

  void octal() {
    char32_t value = 0;
    --at_;
    for (int i = 0; i < 3 && at_ < text_.size() && digit_of(text_[at_]) < 8; ++i, ++at_)
      value = value * 8 + static_cast<char32_t>(digit_of(text_[at_]));
    put(value);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
  char32_t high_ = 0;  // first half of a surrogate pair
};

}  // namespace

std::string read_string_literal(std::string_view literal) { return LiteralText(literal).read(); }

}  // namespace sluice::jinja
