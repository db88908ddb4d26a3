// The source text of a grammar, read from its beginning to its end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/grammar/builder.h"

namespace sluice::grammar {

class Source {
 public:
  // Error(refused) for a text that is too long, or not UTF-8. `where` and `what` begin errors.
  Source(std::string_view text, std::string where, std::string_view what);

  bool at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }  // bytes
  void go_to(size_t at) { at_ = at; }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text);
  char32_t peek() const;  // 0 at the end
  char32_t take_char();   // Error(refused) at the end
  // Digits of a number, up to `most`; nullopt where there are none. More than fit is kUnlimited
  // - 1.
  bool take_number(uint32_t& number);
  // Exactly `digits` of them, a code point.
  char32_t take_hex(int digits);
  std::string_view between(size_t begin, size_t end) const {
    return text_.substr(begin, end - begin);
  }

  // Error(refused): WHERE: WHAT, byte N: `why`.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string_view text_;
  std::string where_;
  std::string what_;
  size_t at_ = 0;
};

}  // namespace sluice::grammar
