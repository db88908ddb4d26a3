#include "src/grammar/regex_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/grammar/source.h"

namespace sluice::grammar {
namespace {

CharRanges digits() { return {{'0', '9'}}; }
CharRanges word() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharRanges white_space() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

void append(CharRanges& to, const CharRanges& more) {
  to.insert(to.end(), more.begin(), more.end());
}

RegexNode list_of(RegexNode::Kind kind, std::vector<RegexNode> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  RegexNode node{.kind = kind};
  node.parts = std::move(parts);
  return node;
}

RegexNode around(RegexNode::Kind kind, RegexNode inside) {
  RegexNode node{.kind = kind};
  node.parts.push_back(std::move(inside));
  return node;
}

RegexNode characters_node(CharRanges ranges) {
  RegexNode node{.kind = RegexNode::Kind::characters};
  node.ranges = std::move(ranges);
  return node;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const std::string& where)
      : in_(pattern, where, "the regular expression") {}

  RegexNode parse() {
    std::vector<RegexNode> alternatives;
    do {
      alternatives.push_back(whole_alternative());
    } while (in_.take("|"));
    if (!in_.at_end()) in_.refuse("a ')' without '('");
    return list_of(RegexNode::Kind::choice, std::move(alternatives));
  }

 private:
  // Reads the whole pattern: a sequence, with its anchors.
  RegexNode whole_alternative() {
    RegexNode all{.kind = RegexNode::Kind::sequence};
    at_begin_ = in_.take("^");
    if (at_begin_) all.parts.push_back({.kind = RegexNode::Kind::begin});
    all.parts.push_back(pieces(0));
    if (!in_.take("$")) return all;
    if (!in_.at_end() && !in_.next_is("|"))
      in_.refuse("'$' is supported at the end of the whole, or of an alternative of the whole");
    all.parts.push_back({.kind = RegexNode::Kind::end});
    return all;
  }

  RegexNode alternatives(int nesting) {
    if (nesting > kMaxNesting) in_.refuse("groups are nested too deeply");
    const bool begins = at_begin_;
    std::vector<RegexNode> all;
    do {
      at_begin_ = begins;
      all.push_back(pieces(nesting));
    } while (in_.take("|"));
    return list_of(RegexNode::Kind::choice, std::move(all));
  }

  // Up to what ends an alternative.
  RegexNode pieces(int nesting) {
    std::vector<RegexNode> parts;
    if (in_look_ && at_begin_) in_.take("^");  // which says nothing there
    while (!in_.at_end() && !in_.next_is("|") && !in_.next_is(")")) {
      if (in_.next_is("$") && (nesting == 0 || in_look_)) break;
      RegexNode part = atom(nesting);
      at_begin_ = at_begin_ && part.kind == RegexNode::Kind::look;
      parts.push_back(quantified(std::move(part)));
    }
    if (in_look_ && in_.take("$")) parts.push_back({.kind = RegexNode::Kind::end});
    return list_of(RegexNode::Kind::sequence, std::move(parts));
  }

  RegexNode quantified(RegexNode part) {
    uint32_t low = 0, high = kUnlimited;
    const size_t begin = in_.at();
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      low = 1;
    } else if (in_.take("?")) {
      high = 1;
    } else if (!interval(low, high)) {
      return part;
    }
    in_.take("?");
    const char32_t next = in_.peek();
    uint32_t ignored = 0;
    if (next == '*' || next == '+' || next == '?' || interval(ignored, ignored))
      in_.refuse("a quantifier of a quantifier is not supported");
    if (part.looks() && (high > 1 || part.kind == RegexNode::Kind::look)) {
      in_.go_to(begin);
      in_.refuse("a look-ahead that is repeated is not supported");
    }
    RegexNode node = around(RegexNode::Kind::repeat, std::move(part));
    node.low = low;
    node.high = high;
    return node;
  }

  // {n}, {n,}, {,m} or {n,m}. What is none of these is characters, as in both languages.
  bool interval(uint32_t& low, uint32_t& high) {
    const size_t begin = in_.at();
    if (!in_.take("{")) return false;
    const bool has_low = in_.take_number(low);
    bool has_high = has_low;
    if (in_.take(",")) {
      has_high = in_.take_number(high);
      if (!has_high) high = kUnlimited;
    } else {
      high = low;
    }
    if (!in_.take("}") || !(has_low || has_high)) {
      in_.go_to(begin);
      low = 0;
      high = kUnlimited;
      return false;
    }
    if (!has_low) low = 0;
    if (low > high) in_.refuse("a quantifier's numbers are out of order");
    return true;
  }

  RegexNode atom(int nesting) {
    if (in_.take("(")) return group(nesting);
    if (in_.take("[")) return set();
    const char32_t c = in_.peek();
    switch (c) {
      case '.':
        in_.take_char();
        return characters_node(complement({{'\n', '\n'}}));
      case '\\':
        in_.take_char();
        return characters_node(escape(false));
      case '^':
      case '$':
        in_.refuse("'^' and '$' are supported at the ends of the whole only");
      case '*':
      case '+':
      case '?':
        in_.refuse("a quantifier without anything to repeat");
      default:
        in_.take_char();
        return characters_node({{c, c}});
    }
  }

  RegexNode group(int nesting) {
    if (in_.take("?")) {
      if (in_.next_is("=") || in_.next_is("!")) return look(nesting);
      if (in_.take("P<") || (in_.next_is("<") && !in_.next_is("<=") && !in_.next_is("<!"))) {
        while (in_.take_char() != '>') {
        }
      } else if (!in_.take(":")) {
        in_.refuse(
            "a group of this kind is not supported; supported: (...), (?:...), (?<name>...), "
            "(?=...) and (?!...)");
      }
    }
    RegexNode inside = alternatives(nesting + 1);
    if (!in_.take(")")) in_.refuse("a group is not closed");
    return inside;
  }

  // Behind "(?": what is to come, or must not.
  RegexNode look(int nesting) {
    const bool negative = in_.take_char() == '!';
    const bool outer = std::exchange(in_look_, true), begins = at_begin_;
    RegexNode node = around(RegexNode::Kind::look, alternatives(nesting + 1));
    in_look_ = outer;
    at_begin_ = begins;
    if (!in_.take(")")) in_.refuse("a group is not closed");
    node.negative = negative;
    return node;
  }

  // After a backslash: the characters that it stands for.
  CharRanges escape(bool in_set) {
    const char32_t c = in_.take_char();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return complement(digits());
      case 'w':
        return word();
      case 'W':
        return complement(word());
      case 's':
        return white_space();
      case 'S':
        return complement(white_space());
      case 'b':
        if (!in_set) in_.refuse("\\b is not supported");
        return one('\b');
      case 'u':
        return in_.take("{") ? one(code_point_in_braces()) : one(in_.take_hex(4));
      default:
        return one(single_escape(c));
    }
  }

  char32_t single_escape(char32_t c) {
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '0':
        if (in_.peek() >= '0' && in_.peek() <= '9') in_.refuse("octal escapes are not supported");
        return 0;
      case 'x':
        return in_.take_hex(2);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter) in_.refuse(fmt::format("\\{} is not supported", static_cast<char>(c)));
    return c;
  }

  char32_t code_point_in_braces() {
    int digits = 0;
    const size_t begin = in_.at();
    while (!in_.at_end() && in_.peek() != '}') {
      in_.take_char();
      ++digits;
    }
    in_.go_to(begin);
    if (digits == 0 || digits > 6) in_.refuse("a hexadecimal escape is malformed");
    const char32_t c = in_.take_hex(digits);
    if (!in_.take("}")) in_.refuse("a hexadecimal escape is malformed");
    return c;
  }

  static CharRanges one(char32_t c) { return {{c, c}}; }

  // After '['. "]" at the beginning is Python's character and ends ECMAScript's set: it is neither.
  RegexNode set() {
    const bool negated = in_.take("^");
    if (in_.next_is("]")) in_.refuse("an empty set, or ']' as its first character: write \\]");
    CharRanges ranges;
    while (!in_.take("]")) {
      CharRanges first = element();
      const bool single = first.size() == 1 && first[0].first == first[0].last;
      if (!single || !in_.next_is("-") || in_.next_is("-]")) {
        append(ranges, first);
        continue;
      }
      in_.take("-");
      const CharRanges last = element();
      if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first)
        in_.refuse("a range in [] is malformed");
      ranges.push_back({first[0].first, last[0].first});
    }
    return characters_node(negated ? complement(ranges) : std::move(ranges));
  }

  CharRanges element() {
    const char32_t c = in_.take_char();
    return c == '\\' ? escape(true) : one(c);
  }

  Source in_;
  bool at_begin_ = false;  // behind ^, and nothing has come but look-ahead
  bool in_look_ = false;   // within a look-ahead, whose alternatives may end with $
};

}  // namespace

bool RegexNode::looks() const {
  return kind == Kind::look || std::ranges::any_of(parts, &RegexNode::looks);
}

RegexNode parse_regex(std::string_view pattern, const std::string& where) {
  return RegexParser(pattern, where).parse();
}

}  // namespace sluice::grammar
