#include "src/text/pattern_syntax.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/text/character_sets.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

std::string hex_escape(char32_t code_point) {
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(code_point));
}

// One element of a character class: a single character, or a set.
struct Element {
  std::optional<char32_t> literal;
  std::string items;     // of a set: what stands between [ and ]
  bool negated = false;  // of a set: the characters that are not in `items`
};

Element literal_element(char32_t c) { return {c, {}, false}; }
Element set_element(std::string items, bool negated) {
  return {std::nullopt, std::move(items), negated};
}

class Translator {
 public:
  Translator(std::string_view in, std::string_view where) : in_(in), where_(where) {}

  std::string translate() {
    while (at_ < in_.size()) piece();
    if (!groups_.empty()) refuse("a group is not closed");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view reason) const { refuse_pattern(in_, where_, reason); }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    if (at_ == in_.size()) refuse("it ends too early");
    Utf8Char c = utf8_char_at(in_, at_);
    at_ += static_cast<size_t>(c.bytes);
    return c.code_point;
  }

  // One class within another.
  class Level {
   public:
    explicit Level(Translator& translator) : translator_(translator) {
      constexpr int kMostLevels = 100;
      if (++translator_.level_ > kMostLevels) translator_.refuse("[] is nested too deeply");
    }
    ~Level() { --translator_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Translator& translator_;
  };

  // One atom, quantifier, anchor or bracket of a group.
  void piece() {
    size_t start = out_.size();
    char32_t c = take_char();
    switch (c) {
      case '\\':
        if (!assertion() && !sequence()) put_atom(start, escape(false));
        return;
      case '[':
        out_ += character_class();
        atom_ = start;
        return;
      case '(':
        open_group();
        return;
      case ')':
        if (groups_.empty()) refuse("a ')' without '('");
        out_ += ')';
        atom_ = groups_.back();
        groups_.pop_back();
        return;
      case '*':
      case '+':
      case '?':
        if (!atom_) refuse("a quantifier without anything to repeat");
        out_ += static_cast<char>(c);
        return;
      case '{':
        if (!interval()) put_atom(start, literal_element(c));
        return;
      case '|':
      case '^':
      case '$':
        out_ += static_cast<char>(c);
        atom_.reset();
        return;
      case '.':
        out_ += '.';
        atom_ = start;
        return;
      default:
        put_atom(start, literal_element(c));
    }
  }

  void put_atom(size_t start, const Element& element) {
    if (element.literal) {
      out_ += hex_escape(*element.literal);
    } else {
      out_ += fmt::format("[{}{}]", element.negated ? "^" : "", element.items);
    }
    atom_ = start;
  }

  // After a backslash: \b and its like, which match no character.
  bool assertion() {
    if (at_ == in_.size()) return false;
    constexpr std::string_view kBoundary = "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))";
    constexpr std::string_view kNoBoundary = "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))";
    std::string word = word_set().append(kLatin1NumberSet);
    switch (in_[at_]) {
      case 'b':
        out_ += fmt::format(kBoundary, word);
        break;
      case 'B':
        out_ += fmt::format(kNoBoundary, word);
        break;
      case 'A':
      case 'z':
      case 'Z':
        out_ += '\\';
        out_ += in_[at_];
        break;
      default:
        return false;
    }
    ++at_;
    atom_.reset();
    return true;
  }

  // After a backslash: what may be several characters.
  bool sequence() {
    const size_t start = out_.size();
    if (take("R")) {
      out_ += R"((?>\r\n|[\x{a}-\x{d}\x{85}\x{2028}\x{2029}]))";
    } else if (take("X")) {
      out_ += R"(\X)";
    } else {
      return false;
    }
    atom_ = start;
    return true;
  }

  // After a backslash, inside or outside of a class.
  Element escape(bool in_class) {
    char32_t c = take_char();
    switch (c) {
      case 's':
        return set_element(std::string(kWhiteSpaceSet), false);
      case 'S':
        return in_class ? set_element(std::string(kNotWhiteSpaceSet), false)
                        : set_element(std::string(kWhiteSpaceSet), true);
      case 'd':
      case 'D':
        return set_element(category_set("Nd"), c == 'D');
      case 'w':
      case 'W':
        return set_element(in_class ? word_set() : word_set().append(kLatin1NumberSet), c == 'W');
      case 'h':
      case 'H':
        return set_element(std::string(kHexDigitSet), c == 'H');
      case 'p':
      case 'P':
        return property(c == 'P');
      case 't':
        return literal_element('\t');
      case 'n':
        return literal_element('\n');
      case 'r':
        return literal_element('\r');
      case 'f':
        return literal_element('\f');
      case 'v':
        return literal_element('\v');
      case 'a':
        return literal_element('\a');
      case 'e':
        return literal_element(0x1B);
      case 'b':  // outside of a class it is an assertion
        return literal_element('\b');
      case 'x':
        return literal_element(take("{") ? hex(8, "}") : hex(2, ""));
      case 'u':
        return literal_element(hex(4, ""));
      default:
        if (c < 0x80 && std::isalnum(static_cast<int>(c))) {
          refuse(fmt::format("\\{} is not supported", static_cast<char>(c)));
        }
        return literal_element(c);
    }
  }

  // Takes at most `digits` hexadecimal digits and then `end`.
  char32_t hex(int digits, std::string_view end) {
    char32_t value = 0;
    int count = 0;
    for (; count < digits && at_ < in_.size() && std::isxdigit(static_cast<uint8_t>(in_[at_]));
         ++count, ++at_) {
      int c = std::tolower(static_cast<uint8_t>(in_[at_]));
      value = value << 4 | static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (count == 0 || !take(end) || value > 0x10FFFF || surrogate) {
      refuse("a hexadecimal escape is malformed");
    }
    return value;
  }

  // After \p: {Name} or {^Name}, a general category or a script.
  Element property(bool negated) {
    size_t close = in_.find('}', at_);
    if (!take("{") || close == std::string_view::npos) refuse("\\p must be followed by {name}");
    if (take("^")) negated = !negated;
    std::optional<std::string> items = property_set(in_.substr(at_, close - at_));
    if (!items) refuse("\\p{name} has an unknown name");
    at_ = close + 1;
    return set_element(*items, negated);
  }

  // After '[': the whole class, as an expression that matches one character.
  std::string character_class() {
    const bool negated = take("^");
    std::string both;  // characters of all sides of the && so far
    Union side;
    for (bool first = true; first || !take("]"); first = false) {
      if (!take("&&")) {
        class_element(side);
      } else {
        intersect(both, std::exchange(side, {}));
      }
    }
    if (both.empty() && side.others.empty())
      return fmt::format("[{}{}]", negated ? "^" : "", side.items);
    intersect(both, side);
    return negated ? fmt::format("(?:(?!{})(?s:.))", both) : both;
  }

  // The contents of a class: items that stand between [ and ], and expressions that match one
  // character.
  struct Union {
    std::string items;
    std::vector<std::string> others;
  };

  void intersect(std::string& both, const Union& side) const {
    std::vector<std::string> ways = side.others;
    if (!side.items.empty()) ways.push_back(fmt::format("[{}]", side.items));
    if (ways.empty()) refuse("a side of '&&' in [] is empty");
    const std::string here = fmt::format("(?:{})", fmt::join(ways, "|"));
    both = both.empty() ? here : fmt::format("(?:(?={}){})", both, here);
  }

  void class_element(Union& side) {
    Element element;
    if (next_is("[:")) {
      element = posix_class();
    } else if (take("[")) {
      const Level level(*this);
      side.others.push_back(character_class());
      return;
    } else {
      element = class_character();
    }
    if (!element.literal) {
      if (element.negated) {
        side.others.push_back(fmt::format("[^{}]", element.items));
      } else {
        side.items += element.items;
      }
      return;
    }
    side.items += hex_escape(*element.literal);
    const bool range = next_is("-") && !next_is("-]");
    if (!range) return;
    ++at_;
    const Element last = class_character();
    if (!last.literal || *last.literal < *element.literal) refuse("a range in [] is malformed");
    side.items += '-' + hex_escape(*last.literal);
  }

  Element class_character() {
    const char32_t c = take_char();
    return c == '\\' ? escape(true) : literal_element(c);
  }

  Element posix_class() {
    const size_t end = in_.find(":]", at_);
    std::string_view name = in_.substr(at_ + 2, end == in_.npos ? 0 : end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const std::optional<std::string> items = posix_set(name);
    if (!items) refuse("[:name:] has an unknown name");
    at_ = end + 2;
    return set_element(*items, negated);
  }

  // After '('. Option letters: Oniguruma's m is PCRE2's s.
  void open_group() {
    size_t start = out_.size();
    bool at_start_of_alternative = content_ == start || out_.ends_with('|');
    atom_.reset();
    if (next_is("*")) refuse("'(*' is not supported");
    if (take("?")) {
      if (take("#")) {
        size_t close = in_.find(')', at_);
        if (close == std::string_view::npos) refuse("a comment is not closed");
        at_ = close + 1;
        return;
      }
      std::string head = group_head();
      out_.append("(?").append(head);
      if (head.ends_with(')')) {
        // Oniguruma reads a(?i)b|c as a(?i:b|c), PCRE2 as a(?i:b)|(?i:c).
        if (!at_start_of_alternative) refuse("options must stand at the start of a group");
        content_ = out_.size();
        return;
      }
    } else {
      out_ += '(';
    }
    groups_.push_back(start);
    content_ = out_.size();
  }

  // Takes the head of a group: all behind "(?" up to and with the character before its content.
  std::string group_head() {
    for (std::string_view head : {":", "=", "!", ">", "<=", "<!"}) {
      if (take(head)) return std::string(head);
    }
    if (group_name()) return ":";
    std::string options;
    while (next_is("i") || next_is("m") || next_is("-")) {
      char c = in_[at_++];
      options += c == 'm' ? 's' : c;
    }
    if (options.empty() || !(next_is(":") || next_is(")"))) {
      refuse("a group of this kind is not supported");
    }
    return options + in_[at_++];
  }

  // <name>. No part of a pattern can refer to it: such parts are refused.
  bool group_name() {
    const size_t end = in_.find('>', at_);
    if (!next_is("<") || end == in_.npos) return false;
    const std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    const auto is_word = [](char c) { return c == '_' || std::isalnum(static_cast<uint8_t>(c)); };
    if (name.empty() || !std::ranges::all_of(name, is_word)) return false;
    at_ = end + 1;
    return true;
  }

  // After '{': {n}, {n,}, {,m} or {n,m}. False, and nothing is taken, when it is none of these.
  bool interval() {
    size_t saved = at_;
    std::string low = digits();
    bool exact = !take(",");
    std::string high = exact ? low : digits();
    if (!take("}") || (low.empty() && high.empty())) {
      at_ = saved;
      return false;
    }
    if (!atom_) refuse("a quantifier without anything to repeat");
    out_ += exact ? fmt::format("{{{}}}", low)
                  : fmt::format("{{{},{}}}", low.empty() ? "0" : low, high);
    // Oniguruma: X{n,m}+ is (?:X{n,m})+, and X{n}? is (?:X{n})?.
    if (next_is("+") || (exact && next_is("?"))) {
      out_.insert(*atom_, "(?:");
      out_ += ')';
    }
    return true;
  }

  std::string digits() {
    std::string found;
    while (at_ < in_.size() && std::isdigit(static_cast<uint8_t>(in_[at_]))) found += in_[at_++];
    return found;
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
  std::optional<size_t> atom_;  // where in out_ the piece begins that a quantifier would repeat
  std::vector<size_t> groups_;  // where in out_ each open group begins
  int level_ = 0;               // of [] within []
  size_t content_ = 0;          // where in out_ the content of the last opened group begins
};

}  // namespace

void refuse_pattern(std::string_view oniguruma, std::string_view where, std::string_view reason) {
  std::string shown(oniguruma.substr(0, 200));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  fail(ErrorKind::refused, "{}: pattern '{}' is not a valid or supported regular expression: {}",
       where, to_valid_utf8(shown), reason);
}

std::string pcre2_pattern(std::string_view oniguruma, std::string_view where) {
  return Translator(oniguruma, where).translate();
}

std::string pcre2_literal(std::string_view text) {
  std::string pattern;
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = utf8_char_at(text, at);
    pattern += hex_escape(c.code_point);
    at += static_cast<size_t>(c.bytes);
  }
  return pattern;
}

}  // namespace sluice
