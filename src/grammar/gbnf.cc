#include "src/grammar/gbnf.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "src/grammar/source.h"
#include "src/text/utf8.h"

namespace sluice::grammar {
namespace {

bool is_name_char(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  GbnfParser(GrammarBuilder& builder, std::string_view text)
      : builder_(builder), in_(text, builder.where(), "the grammar") {}

  Expr parse() {
    skip_space(true);
    while (!in_.at_end()) rule();
    auto root = rules_.find("root");
    if (root == rules_.end() || !builder_.defined(root->second))
      in_.refuse("the rule 'root', with which a text begins, is missing");
    for (const auto& [name, id] : rules_)
      if (!builder_.defined(id)) in_.refuse(fmt::format("the rule {} is not defined", name));
    return builder_.call(root->second);
  }

 private:
  void skip_space(bool lines) {
    while (!in_.at_end()) {
      const char32_t c = in_.peek();
      if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r') in_.take_char();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        in_.take_char();
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t begin = in_.at();
    while (!in_.at_end() && is_name_char(in_.peek())) in_.take_char();
    if (in_.at() == begin) in_.refuse("a rule's name is expected here");
    return std::string(in_.between(begin, in_.at()));
  }

  RuleId id_of(const std::string& name) {
    auto known = rules_.find(name);
    if (known == rules_.end()) known = rules_.emplace(name, builder_.rule(name)).first;
    return known->second;
  }

  void rule() {
    const std::string named = name();
    const RuleId id = id_of(named);
    if (builder_.defined(id)) in_.refuse(fmt::format("the rule {} is there twice", named));
    skip_space(false);
    if (!in_.take("::=")) in_.refuse("'::=' is expected behind a rule's name");
    skip_space(true);
    builder_.define(id, alternatives(0));
    if (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r')
      in_.refuse("a rule ends with its line; only groups, '|' and '::=' go on in the next");
    skip_space(true);
  }

  Expr alternatives(int nesting) {
    if (nesting > kMaxNesting) in_.refuse("groups are nested too deeply");
    std::vector<Expr> all;
    for (;;) {
      all.push_back(sequence(nesting));
      if (!in_.take("|")) break;
      skip_space(true);
    }
    return builder_.choice(std::move(all));
  }

  Expr sequence(int nesting) {
    std::vector<Expr> parts;
    for (;;) {
      const char32_t c = in_.peek();
      const bool more = c == '"' || c == '[' || c == '(' || c == '.' || is_name_char(c);
      if (in_.at_end() || !more) break;
      Expr part = quantified(element(nesting));
      parts.push_back(part);
      skip_space(nesting > 0);
    }
    return builder_.sequence(std::move(parts));
  }

  Expr element(int nesting) {
    if (in_.take("\"")) return literal();
    if (in_.take("[")) return set();
    if (in_.take(".")) return any_character(builder_, Alphabet::text);
    if (!in_.take("(")) return builder_.call(id_of(name()));
    skip_space(true);
    Expr inside = alternatives(nesting + 1);
    if (!in_.take(")")) in_.refuse("a group is not closed");
    return inside;
  }

  Expr quantified(Expr part) {
    skip_blanks_before_quantifier();
    if (in_.take("*")) return builder_.any_number(part);
    if (in_.take("+")) return builder_.repeat(part, 1, kUnlimited);
    if (in_.take("?")) return builder_.optional(part);
    if (!in_.take("{")) return part;
    uint32_t low = 0, high = 0;
    if (!in_.take_number(low)) in_.refuse("a number is expected behind '{'");
    high = low;
    if (in_.take(",") && !in_.take_number(high)) high = kUnlimited;
    if (!in_.take("}")) in_.refuse("'}' is expected");
    if (low > high) in_.refuse("a quantifier's numbers are out of order");
    return builder_.repeat(part, low, high);
  }

  void skip_blanks_before_quantifier() {
    const size_t begin = in_.at();
    while (in_.take(" ")) {
    }
    const char32_t c = in_.peek();
    if (c != '*' && c != '+' && c != '?' && c != '{') in_.go_to(begin);
  }

  char32_t character() {
    const char32_t c = in_.take_char();
    if (c != '\\') return c;
    const char32_t escaped = in_.take_char();
    switch (escaped) {
      case 'x':
        return in_.take_hex(2);
      case 'u':
        return in_.take_hex(4);
      case 'U':
        return in_.take_hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return escaped;
      default:
        in_.refuse("unknown escape");
    }
  }

  Expr literal() {
    std::string text;
    while (!in_.take("\"")) append_utf8(character(), text);
    return builder_.text(text);
  }

  Expr set() {
    const bool negated = in_.take("^");
    CharRanges ranges;
    while (!in_.take("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (in_.next_is("-") && !in_.next_is("-]")) {
        in_.take("-");
        last = character();
      }
      if (last < first) in_.refuse("a range in [] is malformed");
      ranges.push_back({first, last});
    }
    return builder_.characters(negated ? complement(ranges) : std::move(ranges));
  }

  GrammarBuilder& builder_;
  Source in_;
  std::map<std::string, RuleId, std::less<>> rules_;
};

}  // namespace

Expr gbnf(GrammarBuilder& builder, std::string_view text) {
  return GbnfParser(builder, text).parse();
}

}  // namespace sluice::grammar
