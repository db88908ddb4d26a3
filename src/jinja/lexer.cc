#include "src/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "src/jinja/characters.h"
#include "src/jinja/fault.h"
#include "src/jinja/string_literal.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

// Line breaks of any kind become \n, and the last one goes.
std::string normalize_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

constexpr std::array<std::string_view, 26> kSigns{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit_of(char c, int base) {
  if (c >= '0' && c <= '9') return c - '0' < base;
  const char low = static_cast<char>(c | 0x20);
  return base == 16 && low >= 'a' && low <= 'f';
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, int& line) : text_(normalize_lines(source)), line_(line) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    add(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool here(std::string_view what) const { return rest().starts_with(what); }
  void pass(size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
  }
  void pass_space() { pass(rest().size() - strip_left(rest()).size()); }
  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }

  // The next tag's place, or the end of the text.
  size_t next_tag() const {
    for (size_t at = at_; at + 1 < text_.size(); ++at) {
      if (text_[at] == '{' && std::string_view("{%#").find(text_[at + 1]) != std::string_view::npos)
        return at;
    }
    return text_.size();
  }

  // Text up to a tag, and the tag.
  void data() {
    const size_t tag = next_tag();
    std::string_view text = std::string_view(text_).substr(at_, tag - at_);
    if (tag == text_.size()) {
      if (!text.empty()) add(TokenKind::data, std::string(text));
      at_ = tag;
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (std::string_view kept = before_tag(text, kind != '{', sign); !kept.empty())
      add(TokenKind::data, std::string(kept));
    pass(text.size());
    pass(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '{') return tag_of(TokenKind::variable_begin, TokenKind::variable_end);
    if (!raw()) tag_of(TokenKind::block_begin, TokenKind::block_end);
  }

  // Returns the rest of the text before a tag, once white space is stripped.
  std::string_view before_tag(std::string_view text, bool strips, char sign) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || !strips) return text;
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool starts_line = begin > 0 || at_ == 0 || text_[at_ - 1] == '\n';
    const std::string_view last = text.substr(begin);
    return starts_line && !last.empty() && strip(last).empty() ? text.substr(0, begin) : text;
  }

  // Skips the white space that goes with "%}", "#}" or "}}" and its sign.
  void end_tag(char sign, bool trims) {
    if (sign == '-') {
      pass_space();
    } else if (sign != '+' && trims && here("\n")) {
      pass(1);
    }
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) refuse(FaultKind::syntax, "a comment does not end");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    pass(end + 2 - at_);
    end_tag(sign == '-' || sign == '+' ? sign : '\0', true);
  }

  // The size of "name" and the end of its tag at `at`, with white space around; its sign. nullopt:
  // another tag.
  struct TagEnd {
    size_t end;
    char sign;
  };
  std::optional<TagEnd> word_tag(size_t at, std::string_view name) const {
    auto skip = [&] {
      const std::string_view left = std::string_view(text_).substr(at);
      at += left.size() - strip_left(left).size();
    };
    skip();
    if (!std::string_view(text_).substr(at).starts_with(name)) return std::nullopt;
    at += name.size();
    skip();
    char sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-' || sign == '+') {
      ++at;
    } else {
      sign = '\0';
    }
    if (!std::string_view(text_).substr(at).starts_with("%}")) return std::nullopt;
    return TagEnd{at + 2, sign};
  }

  // {% raw %}...{% endraw %}, behind the first "{%".
  bool raw() {
    const std::optional<TagEnd> begin = word_tag(at_, "raw");
    if (!begin || begin->sign == '+') return false;
    pass(begin->end - at_);
    if (begin->sign == '-') pass_space();
    if (at_ == text_.size()) return true;
    for (size_t tag = at_; (tag = text_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const std::optional<TagEnd> end = word_tag(tag + (has_sign ? 3 : 2), "endraw");
      if (!end) continue;
      const std::string_view text = std::string_view(text_).substr(at_, tag - at_);
      if (std::string_view kept = before_tag(text, true, sign); !kept.empty())
        add(TokenKind::data, std::string(kept));
      pass(end->end - at_);
      end_tag(end->sign, true);
      return true;
    }
    refuse(FaultKind::syntax, "{{% raw %}} does not end");
  }

  // The inside of a tag.
  void tag_of(TokenKind begin, TokenKind end) {
    add(begin, {});
    const std::string_view close = end == TokenKind::block_end ? "%}" : "}}";
    std::string brackets;  // that are open
    for (;;) {
      pass_space();
      if (at_ == text_.size()) return;  // the parser says what is missing
      if (brackets.empty() && ends(close)) {
        const char sign = here("-") || here("+") ? text_[at_] : '\0';
        add(end, {});
        pass(sign == '\0' ? 2 : 3);
        return end_tag(sign, end == TokenKind::block_end);
      }
      token(brackets);
    }
  }

  bool ends(std::string_view close) const {
    if (here(close)) return true;
    const bool signed_end = here("-") || (here("+") && close == "%}");
    return signed_end && rest().substr(1).starts_with(close);
  }

  void token(std::string& brackets) {
    const char c = text_[at_];
    if (number()) return;
    if (name()) return;
    if (c == '\'' || c == '"') return string();
    const auto* sign = std::ranges::find_if(kSigns, [&](std::string_view s) { return here(s); });
    if (sign == kSigns.end()) unexpected();
    balance(sign->front(), brackets);
    add(TokenKind::sign, std::string(*sign));
    pass(sign->size());
  }

  [[noreturn]] void unexpected() const {
    const auto bytes = static_cast<size_t>(utf8_char_at(text_, at_).bytes);
    refuse(FaultKind::syntax, "unexpected character '{}'", rest().substr(0, bytes));
  }

  static void balance(char sign, std::string& brackets) {
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (size_t i = kOpen.find(sign); i != std::string_view::npos) brackets += kClose[i];
    if (kClose.find(sign) == std::string_view::npos) return;
    if (brackets.empty()) refuse(FaultKind::syntax, "unexpected '{}'", sign);
    if (brackets.back() != sign)
      refuse(FaultKind::syntax, "unexpected '{}', expected '{}'", sign, brackets.back());
    brackets.pop_back();
  }

  // Digits with single underscores between them; their end.
  size_t digits(size_t at, int base = 10) const {
    while (at < text_.size()) {
      if (is_digit_of(text_[at], base)) {
        ++at;
      } else if (text_[at] == '_' && at + 1 < text_.size() && is_digit_of(text_[at + 1], base)) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  bool number() {
    if (!is_ascii_digit(text_[at_])) return false;
    const bool behind_dot = at_ > 0 && text_[at_ - 1] == '.';
    const size_t whole = digits(at_);
    size_t end = whole;
    auto digit_at = [&](size_t at) { return at < text_.size() && is_ascii_digit(text_[at]); };
    if (end < text_.size() && text_[end] == '.' && digit_at(end + 1)) end = digits(end + 1);
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t sign =
          end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
      if (digit_at(end + 1 + sign)) end = digits(end + 1 + sign);
    }
    if (end == whole || behind_dot) return integer();
    std::string plain(text_, at_, end - at_);
    std::erase(plain, '_');
    double value = 0;
    std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (value == 0 && plain.find_first_of("123456789") < plain.find_first_of("eE"))
      value = std::strtod(plain.c_str(), nullptr);  // too large or too small
    tokens_.push_back({.kind = TokenKind::real, .line = line_, .text = plain, .real = value});
    pass(end - at_);
    return true;
  }

  bool integer() {
    int base = 10;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char mark = static_cast<char>(text_[at_ + 1] | 0x20);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    }
    size_t begin = base == 10 ? at_ : at_ + 2;
    size_t end = digits(begin + (base != 10 && begin < text_.size() && text_[begin] == '_'), base);
    if (base != 10 && end == begin) {  // 0 and a name
      base = 10;
      begin = at_;
      end = at_ + 1;
    }
    if (base == 10 && text_[at_] == '0') end = zeros();
    std::string plain(text_, begin, end - begin);
    std::erase(plain, '_');
    Token token{.kind = TokenKind::integer, .line = line_, .text = plain};
    token.integer = BigInteger::read(plain, static_cast<unsigned>(base)).value_or(BigInteger());
    tokens_.push_back(std::move(token));
    pass(end - at_);
    return true;
  }

  // A number that begins with 0 has no other digits.
  size_t zeros() const {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] == '0') ++end;
    return end;
  }

  bool name() {
    size_t end = at_;
    while (end < text_.size()) {
      const Utf8Char c = utf8_char_at(text_, end);
      if (c.code_point != '_' && !is_word_character(c.code_point)) break;
      end += static_cast<size_t>(c.bytes);
    }
    if (end == at_) return false;
    add(TokenKind::name, text_.substr(at_, end - at_));
    pass(end - at_);
    return true;
  }

  void string() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) refuse(FaultKind::syntax, "a string does not end");
    add(TokenKind::text,
        read_string_literal(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    pass(end + 1 - at_);
  }

  std::string text_;
  int& line_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::block_begin:
      return "begin of statement block";
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::variable_begin:
      return "begin of print statement";
    case TokenKind::variable_end:
      return "end of print statement";
    case TokenKind::text:
      return "string";
    case TokenKind::end:
      return "end of template";
    default:
      return token.text;
  }
}

std::vector<Token> tokenize(std::string_view source, int& line) {
  line = 1;
  return Lexer(source, line).run();
}

}  // namespace sluice::jinja
