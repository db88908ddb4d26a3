// From terms of languages to the rules of a grammar.
#include <algorithm>
#include <iterator>
#include <set>

#include "src/base/error.h"
#include "src/grammar/languages.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMostStates = 12'000;
constexpr size_t kMostMoves = 40'000;
constexpr uint64_t kMostSteps = 300'000;

// Ranges that no character of `ranges` is split by.
void add_borders(const CharRanges& ranges, std::set<char32_t>& borders) {
  for (CharRange range : ranges) {
    borders.insert(range.first);
    borders.insert(range.last + 1);
  }
}

}  // namespace

// States in the order in which they were found; the first is the beginning.
struct Languages::Automaton {
  struct Move {
    uint32_t to = 0;
    std::vector<uint32_t> classes = {};
  };
  struct State {
    bool ends = false;
    bool lives = false;  // an end can be reached
    std::vector<Move> moves = {};
  };
  std::vector<CharRanges> classes;
  std::vector<State> states;

  void find_living();
};

void Languages::Automaton::find_living() {
  std::vector<std::vector<uint32_t>> from(states.size());
  std::vector<uint32_t> open;
  for (uint32_t s = 0; s < states.size(); ++s) {
    for (const Move& move : states[s].moves) from[move.to].push_back(s);
    if (states[s].ends) open.push_back(s);
  }
  for (uint32_t s : open) states[s].lives = true;
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    for (uint32_t before : from[s]) {
      if (states[before].lives) continue;
      states[before].lives = true;
      open.push_back(before);
    }
  }
}

// Characters that no set of the term tells apart, together. Derivatives have no other sets.
std::vector<CharRanges> Languages::classes(Term term) const {
  std::set<uint32_t> seen, sets;
  std::vector<uint32_t> open{term.index};
  bool numbers = false;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (!seen.insert(at).second) continue;
    const Node& node = nodes_[at];
    open.insert(open.end(), node.parts.begin(), node.parts.end());
    if (node.kind == Kind::characters) sets.insert(node.a);
    if (node.kind == Kind::sequence) open.push_back(node.b);
    if (node.kind == Kind::sequence || node.kind == Kind::without || node.kind == Kind::repeat)
      open.push_back(node.a);
    numbers = numbers || node.kind == Kind::compared || node.kind == Kind::multiples;
  }
  std::set<char32_t> borders{0, 0x110000};
  for (uint32_t set : sets) add_borders(sets_[set], borders);
  for (char32_t c = '.'; numbers && c <= '9' + 1; ++c) borders.insert(c);
  std::map<std::vector<bool>, CharRanges> alike;
  for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
    const CharRange range{*at, *std::next(at) - 1};
    std::vector<bool> in;
    for (uint32_t set : sets) {
      in.push_back(std::ranges::any_of(sets_[set], [&](CharRange r) {
        return r.first <= range.first && range.first <= r.last;
      }));
    }
    for (char32_t c = '.'; numbers && c <= '9'; ++c) in.push_back(range.first == c);
    alike[in].push_back(range);
  }
  std::vector<CharRanges> all;
  for (auto& [in, ranges] : alike) {
    CharRanges together = normalized(std::move(ranges));
    if (!together.empty()) all.push_back(std::move(together));
  }
  return all;
}

Languages::Automaton Languages::automaton(Term term) {
  Automaton made{.classes = classes(term), .states = {}};
  std::map<Term, uint32_t> numbers{{term, 0}};
  std::vector<Term> terms{term};
  const uint64_t most = steps_ + kMostSteps;
  size_t moves = 0;
  for (size_t s = 0; s < terms.size(); ++s) {
    Automaton::State state{.ends = is_nullable(terms[s])};
    std::map<uint32_t, std::vector<uint32_t>> to;
    for (uint32_t c = 0; c < made.classes.size(); ++c) {
      const Term next = derivative(terms[s], made.classes[c].front().first);
      if (next == nothing()) continue;
      auto [known, is_new] = numbers.try_emplace(next, static_cast<uint32_t>(terms.size()));
      if (is_new) terms.push_back(next);
      to[known->second].push_back(c);
    }
    for (auto& [target, classes] : to) state.moves.push_back({target, std::move(classes)});
    moves += state.moves.size();
    made.states.push_back(std::move(state));
    if (terms.size() > kMostStates || moves > kMostMoves || steps_ > most)
      fail(ErrorKind::refused, "{}: the rules of one text together are too complex", where_);
  }
  made.find_living();
  return made;
}

bool Languages::is_empty(Term term) { return !automaton(term).states.front().lives; }

Expr Languages::expr(GrammarBuilder& builder, Term term, Alphabet alphabet) {
  const Automaton all = automaton(term);
  std::vector<RuleId> rules;
  for (const Automaton::State& state : all.states)
    rules.push_back(state.lives ? builder.rule("text") : RuleId{});
  std::map<std::vector<uint32_t>, Expr> sets;
  auto set_of = [&](const std::vector<uint32_t>& classes) {
    auto known = sets.find(classes);
    if (known != sets.end()) return known->second;
    CharRanges ranges;
    for (uint32_t c : classes)
      ranges.insert(ranges.end(), all.classes[c].begin(), all.classes[c].end());
    ranges = normalized(std::move(ranges));
    const bool plain = ranges.back().last < 0x7F && ranges.front().first >= 0x20;
    Expr set = grammar::characters(builder, ranges, alphabet);
    if (!plain) set = builder.rule_of("characters", set);
    return sets.emplace(classes, set).first->second;
  };
  for (size_t s = 0; s < all.states.size(); ++s) {
    if (!all.states[s].lives) continue;
    std::vector<Expr> alternatives;
    if (all.states[s].ends) alternatives.push_back(builder.text({}));
    for (const Automaton::Move& move : all.states[s].moves) {
      if (!all.states[move.to].lives) continue;
      alternatives.push_back(
          builder.sequence({set_of(move.classes), builder.call(rules[move.to])}));
    }
    builder.define(rules[s], builder.choice(std::move(alternatives)));
  }
  return all.states.front().lives ? builder.call(rules.front()) : builder.choice({});
}

}  // namespace sluice::grammar
