#include "src/grammar/regex.h"

#include <utility>
#include <vector>

#include "src/grammar/languages.h"
#include "src/grammar/regex_tree.h"

namespace sluice::grammar {
namespace {

using Kind = RegexNode::Kind;

// Each part of a tree as a part of a grammar.
class RegexEmitter {
 public:
  RegexEmitter(GrammarBuilder& builder, Alphabet alphabet, Match match)
      : builder_(builder), alphabet_(alphabet), match_(match) {}

  Expr whole(const RegexNode& node) const {
    if (node.kind == Kind::sequence) return anchored(node);
    std::vector<Expr> alternatives;
    for (const RegexNode& part : node.parts) alternatives.push_back(anchored(part));
    return builder_.choice(std::move(alternatives));
  }

 private:
  // Builds the whole pattern, with what may be around it.
  Expr anchored(const RegexNode& node) const {
    std::vector<Expr> parts;
    const bool begins = node.parts.front().kind == Kind::begin;
    const bool ends = node.parts.back().kind == Kind::end;
    if (match_ == Match::within && !begins) parts.push_back(anything());
    for (const RegexNode& part : node.parts)
      if (part.kind != Kind::begin && part.kind != Kind::end) parts.push_back(expr(part));
    if (match_ == Match::within && !ends) parts.push_back(anything());
    return builder_.sequence(std::move(parts));
  }

  Expr anything() const { return builder_.any_number(any_character(builder_, alphabet_)); }

  // Builds a part without anchors and look-ahead.
  Expr expr(const RegexNode& node) const {
    if (node.kind == Kind::characters) return characters(builder_, node.ranges, alphabet_);
    if (node.kind == Kind::repeat)
      return builder_.repeat(expr(node.parts.front()), node.low, node.high);
    std::vector<Expr> parts;
    for (const RegexNode& part : node.parts) parts.push_back(expr(part));
    return node.kind == Kind::choice ? builder_.choice(std::move(parts))
                                     : builder_.sequence(std::move(parts));
  }

  GrammarBuilder& builder_;
  Alphabet alphabet_;
  Match match_;
};

}  // namespace

Expr regex(GrammarBuilder& builder, std::string_view pattern, Alphabet alphabet, Match match) {
  const RegexNode tree = parse_regex(pattern, builder.where());
  if (!tree.looks()) return RegexEmitter(builder, alphabet, match).whole(tree);
  Languages languages(builder.where());
  return languages.expr(builder, languages.regex(tree, match), alphabet);
}

}  // namespace sluice::grammar
