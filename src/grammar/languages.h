// Regular languages that several rules describe together: a pattern, a format, lengths, and what
// must not be. They are closed under intersection and complement, which a grammar's parts are not.
//
// A term is what may still come. Its derivative by a character (Brzozowski) is what may come behind
// it; terms are shared, so that a language has finitely many. expr() follows them to an automaton,
// of which each state is a rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/grammar/characters.h"
#include "src/grammar/regex.h"

namespace sluice::grammar {

struct RegexNode;

// Belongs to its Languages.
struct Term {
  uint32_t index = 0;
  auto operator<=>(const Term&) const = default;
};

// A number without a sign, digit by digit: "12.5" is {"12", "5"}.
struct Decimal {
  std::string whole = "0";  // without leading zeros
  std::string fraction = {};
  auto operator<=>(const Decimal&) const = default;
};
enum class Compared : uint8_t { less, at_most, at_least, more };

class Languages {
 public:
  explicit Languages(std::string where);

  Term nothing() const { return {0}; }
  Term empty() const { return {1}; }
  Term anything() const { return {2}; }
  Term characters(CharRanges ranges);
  Term text(std::string_view text);  // just this
  Term sequence(Term a, Term b);
  Term either(std::vector<Term> terms);
  Term both(std::vector<Term> terms);
  Term without(Term term);  // all texts but these
  Term repeat(Term term, uint32_t low, uint32_t high);
  // Does what regex() does. Error(refused) as there.
  Term regex(const RegexNode& tree, Match match);
  Term regex(std::string_view pattern, Match match);
  // Numbers without a sign that compare so, in any notation without an exponent.
  Term compared(Compared how, const Decimal& bound);
  // Such numbers of which 10 to the power of `places` times themselves are multiples of `divisor`.
  Term multiples(uint32_t divisor, uint32_t places);

  bool matches(Term term, std::string_view text);
  // No text is in it. Error(refused) where that takes too long to say, as in expr().
  bool is_empty(Term term);
  // Error(refused) for an automaton that is too large.
  Expr expr(GrammarBuilder& builder, Term term, Alphabet alphabet);

  uint64_t steps() const { return steps_; }  // derivatives that were made

 private:
  enum class Kind : uint8_t {
    nothing,
    empty,
    characters,  // a: of sets_
    sequence,    // a, b
    either,      // parts
    both,        // parts
    without,     // a
    repeat,      // a; b times at least, c at most
    compared,    // how a to bounds_[b]; c: what is known of it so far
    multiples,   // of a, places b; c: how far it is, d: the rest
  };
  struct Node {
    Kind kind = Kind::nothing;
    bool nullable = false;
    uint32_t a = 0, b = 0, c = 0, d = 0;
    std::vector<uint32_t> parts = {};
  };
  struct Automaton;

  Term add(Node node);
  Term list(Kind kind, std::vector<Term> terms);
  bool is_nullable(const Node& node) const;
  bool is_nullable(Term term) const { return nodes_[term.index].nullable; }
  Term derivative(Term term, char32_t c);
  Term derive(const Node& node, char32_t c);
  Term derive_compared(const Node& node, char32_t c);
  Term derive_multiple(const Node& node, char32_t c);
  bool ends_compared(const Node& node) const;
  Term tree_term(const RegexNode& node, Term behind);
  Term plain_term(const RegexNode& node);
  std::vector<CharRanges> classes(Term term) const;
  Automaton automaton(Term term);

  std::string where_;
  std::vector<Node> nodes_;
  std::map<std::vector<uint32_t>, uint32_t> known_;
  std::vector<CharRanges> sets_;
  std::map<CharRanges, uint32_t> known_sets_;
  std::vector<Decimal> bounds_;
  std::map<std::pair<uint32_t, char32_t>, uint32_t> derivatives_;
  uint64_t steps_ = 0;
};

}  // namespace sluice::grammar
