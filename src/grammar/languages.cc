#include "src/grammar/languages.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/grammar/regex_tree.h"
#include "src/text/utf8.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMostTerms = 60'000;
constexpr size_t kMostNodes = 2000;  // of a regular expression: terms are nested as deeply

bool has(const CharRanges& ranges, char32_t c) {
  return std::ranges::any_of(ranges,
                             [c](CharRange range) { return range.first <= c && c <= range.last; });
}

size_t nodes_of(const RegexNode& node) {
  size_t all = 1;
  for (const RegexNode& part : node.parts) all += nodes_of(part);
  return all;
}

bool is_plain(const RegexNode& node) {
  return node.kind != RegexNode::Kind::begin && node.kind != RegexNode::Kind::end &&
         node.kind != RegexNode::Kind::look && std::ranges::all_of(node.parts, is_plain);
}

uint32_t one_less(uint32_t count) { return count == 0 || count == kUnlimited ? count : count - 1; }

}  // namespace

Languages::Languages(std::string where) : where_(std::move(where)) {
  add({.kind = Kind::nothing});
  add({.kind = Kind::empty});
  add({.kind = Kind::without, .a = nothing().index});
}

Term Languages::add(Node node) {
  std::vector<uint32_t> key{static_cast<uint32_t>(node.kind), node.a, node.b, node.c, node.d};
  key.insert(key.end(), node.parts.begin(), node.parts.end());
  auto [found, made] = known_.try_emplace(std::move(key), static_cast<uint32_t>(nodes_.size()));
  if (!made) return {found->second};
  if (nodes_.size() >= kMostTerms)
    fail(ErrorKind::refused, "{}: the rules of one text together are too complex", where_);
  node.nullable = is_nullable(node);
  nodes_.push_back(std::move(node));
  return {found->second};
}

bool Languages::is_nullable(const Node& node) const {
  auto of = [&](uint32_t index) { return nodes_[index].nullable; };
  switch (node.kind) {
    case Kind::empty:
      return true;
    case Kind::sequence:
      return of(node.a) && of(node.b);
    case Kind::either:
      return std::ranges::any_of(node.parts, of);
    case Kind::both:
      return std::ranges::all_of(node.parts, of);
    case Kind::without:
      return !of(node.a);
    case Kind::repeat:
      return node.b == 0 || of(node.a);
    case Kind::compared:
    case Kind::multiples:
      return ends_compared(node);
    default:
      return false;
  }
}

Term Languages::characters(CharRanges ranges) {
  ranges = normalized(std::move(ranges));
  if (ranges.empty()) return nothing();
  auto [found, made] = known_sets_.try_emplace(ranges, static_cast<uint32_t>(sets_.size()));
  if (made) sets_.push_back(std::move(ranges));
  return add({.kind = Kind::characters, .a = found->second});
}

Term Languages::text(std::string_view text) {
  std::vector<Term> parts;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    parts.push_back(characters({{c.code_point, c.code_point}}));
    at += static_cast<size_t>(c.bytes);
  }
  Term all = empty();
  for (size_t i = parts.size(); i-- > 0;) all = sequence(parts[i], all);
  return all;
}

Term Languages::sequence(Term a, Term b) {
  if (a == nothing() || b == nothing()) return nothing();
  if (a == empty()) return b;
  if (b == empty()) return a;
  if (a == anything() && b == anything()) return a;
  if (nodes_[a.index].kind == Kind::sequence) {
    const Node first = nodes_[a.index];
    return sequence({first.a}, sequence({first.b}, b));
  }
  return add({.kind = Kind::sequence, .a = a.index, .b = b.index});
}

// Sorted, each once, those of the same kind taken apart.
Term Languages::list(Kind kind, std::vector<Term> terms) {
  std::vector<uint32_t> parts;
  for (Term term : terms) {
    const Node& node = nodes_[term.index];
    if (node.kind == kind) {
      parts.insert(parts.end(), node.parts.begin(), node.parts.end());
    } else {
      parts.push_back(term.index);
    }
  }
  std::ranges::sort(parts);
  parts.erase(std::ranges::unique(parts).begin(), parts.end());
  if (parts.size() == 1) return {parts.front()};
  Node node{.kind = kind};
  node.parts = std::move(parts);
  return add(std::move(node));
}

Term Languages::either(std::vector<Term> terms) {
  std::erase(terms, nothing());
  if (terms.empty()) return nothing();
  if (std::ranges::find(terms, anything()) != terms.end()) return anything();
  return list(Kind::either, std::move(terms));
}

Term Languages::both(std::vector<Term> terms) {
  std::erase(terms, anything());
  if (terms.empty()) return anything();
  if (std::ranges::find(terms, nothing()) != terms.end()) return nothing();
  if (std::ranges::find(terms, empty()) != terms.end()) {
    const bool all = std::ranges::all_of(terms, [&](Term t) { return is_nullable(t); });
    return all ? empty() : nothing();
  }
  return list(Kind::both, std::move(terms));
}

Term Languages::without(Term term) {
  const Node& node = nodes_[term.index];
  if (node.kind == Kind::without) return {node.a};
  return add({.kind = Kind::without, .a = term.index});
}

Term Languages::repeat(Term term, uint32_t low, uint32_t high) {
  if (low > high) return nothing();
  if (high == 0 || term == empty()) return empty();
  if (term == nothing()) return low == 0 ? empty() : nothing();
  if (term == anything()) return term;
  if (is_nullable(term)) low = 0;
  if (low == 1 && high == 1) return term;
  return add({.kind = Kind::repeat, .a = term.index, .b = low, .c = high});
}

Term Languages::derivative(Term term, char32_t c) {
  auto known = derivatives_.find({term.index, c});
  if (known != derivatives_.end()) return {known->second};
  ++steps_;
  const Node node = nodes_[term.index];
  const Term made = derive(node, c);
  derivatives_.emplace(std::pair(term.index, c), made.index);
  return made;
}

Term Languages::derive(const Node& node, char32_t c) {
  std::vector<Term> terms;
  switch (node.kind) {
    case Kind::characters:
      return has(sets_[node.a], c) ? empty() : nothing();
    case Kind::sequence: {
      terms.push_back(sequence(derivative({node.a}, c), {node.b}));
      if (is_nullable(Term{node.a})) terms.push_back(derivative({node.b}, c));
      return either(std::move(terms));
    }
    case Kind::either:
      for (uint32_t part : node.parts) terms.push_back(derivative({part}, c));
      return either(std::move(terms));
    case Kind::both:
      for (uint32_t part : node.parts) terms.push_back(derivative({part}, c));
      return both(std::move(terms));
    case Kind::without:
      return without(derivative({node.a}, c));
    case Kind::repeat:
      return sequence(derivative({node.a}, c),
                      repeat({node.a}, one_less(node.b), one_less(node.c)));
    case Kind::compared:
      return derive_compared(node, c);
    case Kind::multiples:
      return derive_multiple(node, c);
    default:
      return nothing();
  }
}

// Without look-ahead and anchors.
Term Languages::plain_term(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::characters) return characters(node.ranges);
  if (node.kind == RegexNode::Kind::repeat)
    return repeat(plain_term(node.parts.front()), node.low, node.high);
  if (node.kind == RegexNode::Kind::choice) {
    std::vector<Term> terms;
    for (const RegexNode& part : node.parts) terms.push_back(plain_term(part));
    return either(std::move(terms));
  }
  Term all = empty();
  for (size_t i = node.parts.size(); i-- > 0;) all = sequence(plain_term(node.parts[i]), all);
  return all;
}

// With what comes behind it, at which it may look.
Term Languages::tree_term(const RegexNode& node, Term behind) {
  if (is_plain(node)) return sequence(plain_term(node), behind);
  switch (node.kind) {
    case RegexNode::Kind::begin:
      return behind;
    case RegexNode::Kind::end:
      return both({empty(), behind});
    case RegexNode::Kind::look: {
      const Term seen = tree_term(node.parts.front(), anything());
      return both({node.negative ? without(seen) : seen, behind});
    }
    case RegexNode::Kind::choice: {
      std::vector<Term> terms;
      for (const RegexNode& part : node.parts) terms.push_back(tree_term(part, behind));
      return either(std::move(terms));
    }
    case RegexNode::Kind::sequence:
      for (size_t i = node.parts.size(); i-- > 0;) behind = tree_term(node.parts[i], behind);
      return behind;
    default:  // a repetition, of what looks at most once
      if (node.high == 0) return behind;
      return either({tree_term(node.parts.front(), behind), node.low == 0 ? behind : nothing()});
  }
}

Term Languages::regex(const RegexNode& tree, Match match) {
  if (nodes_of(tree) > kMostNodes)
    fail(ErrorKind::refused,
         "{}: the regular expression has too many parts to be held beside others", where_);
  if (tree.kind == RegexNode::Kind::choice) {
    std::vector<Term> terms;
    for (const RegexNode& part : tree.parts) terms.push_back(regex(part, match));
    return either(std::move(terms));
  }
  const bool begins = tree.parts.front().kind == RegexNode::Kind::begin;
  const Term found = tree_term(tree, match == Match::within ? anything() : empty());
  return match == Match::whole || begins ? found : sequence(anything(), found);
}

Term Languages::regex(std::string_view pattern, Match match) {
  return regex(parse_regex(pattern, where_), match);
}

bool Languages::matches(Term term, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    term = derivative(term, c.code_point);
    at += static_cast<size_t>(c.bytes);
  }
  return is_nullable(term);
}

}  // namespace sluice::grammar
