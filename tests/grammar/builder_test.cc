// The automaton against the definition of what grammars match.
#include "src/grammar/builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/grammar/matching.h"
#include "tests/support/random.h"

namespace sluice::grammar {
namespace {

// A grammar as a tree, put together twice: as parts of a builder, and to be matched by definition.
struct Tree {
  enum class Kind : uint8_t { text, choice, sequence, repeat, call } kind;
  std::string text = {};
  std::vector<Tree> inside = {};
  uint32_t low = 0, high = 0;
};

Tree random_tree(test::Random& random, int depth, bool calls) {
  using Kind = Tree::Kind;
  constexpr const char* kTexts[] = {"", "a", "b", "ab", "aa"};
  const int64_t kind = random.between(0, depth > 0 ? 6 : 1);
  if (kind <= 1) return {Kind::text, kTexts[random.between(0, 4)]};
  if (kind == 6 && calls) return {Kind::call};
  Tree tree{kind == 2 ? Kind::choice : kind == 3 ? Kind::sequence : Kind::repeat};
  const int64_t parts = tree.kind == Kind::repeat ? 1 : random.between(1, 3);
  for (int64_t i = 0; i < parts; ++i) tree.inside.push_back(random_tree(random, depth - 1, calls));
  tree.low = static_cast<uint32_t>(random.between(0, 3));
  tree.high =
      random.uniform() < 0.3 ? kUnlimited : tree.low + static_cast<uint32_t>(random.between(0, 4));
  return tree;
}

Expr build(GrammarBuilder& builder, const Tree& tree, RuleId self) {
  std::vector<Expr> inside;
  for (const Tree& part : tree.inside) inside.push_back(build(builder, part, self));
  switch (tree.kind) {
    case Tree::Kind::text:
      return builder.text(tree.text);
    case Tree::Kind::choice:
      return builder.choice(inside);
    case Tree::Kind::sequence:
      return builder.sequence(inside);
    case Tree::Kind::repeat:
      return builder.repeat(inside[0], tree.low, tree.high);
    case Tree::Kind::call:
      return builder.call(self);
  }
  return {};
}

// A text that matches, or nearly: where it would be long, parts are left out.
std::string sample(const Tree& tree, const Tree& rule, test::Random& random, int depth) {
  if (depth < 0) return {};
  auto each = [&](const Tree& part) { return sample(part, rule, random, depth - 1); };
  std::string text = tree.text;
  switch (tree.kind) {
    case Tree::Kind::text:
      break;
    case Tree::Kind::choice:
      return each(tree.inside[static_cast<size_t>(random.between(0, std::ssize(tree.inside) - 1))]);
    case Tree::Kind::sequence:
      for (const Tree& part : tree.inside) text += each(part);
      break;
    case Tree::Kind::repeat:
      for (int64_t n = random.between(tree.low, std::min(tree.high, tree.low + 2)); n > 0; --n)
        text += each(tree.inside[0]);
      break;
    case Tree::Kind::call:
      return "(" + each(rule) + ")";
  }
  return text;
}

using Ends = std::set<size_t>;

// Finds the ends of matches of `tree` that begin at `at`. A call matches `tree_of_rule` between
// parentheses.
class Definition {
 public:
  Definition(const Tree& rule, std::string_view text) : rule_(rule), text_(text) {}

  Ends ends(const Tree& tree, size_t at) {
    auto known = known_.find({&tree, at});
    if (known == known_.end()) known = known_.emplace(std::pair(&tree, at), find(tree, at)).first;
    return known->second;
  }

 private:
  Ends find(const Tree& tree, size_t at) {
    switch (tree.kind) {
      case Tree::Kind::text:
        return text_.substr(at).starts_with(tree.text) ? Ends{at + tree.text.size()} : Ends{};
      case Tree::Kind::choice: {
        Ends all;
        for (const Tree& part : tree.inside) all.merge(ends(part, at));
        return all;
      }
      case Tree::Kind::sequence: {
        Ends now{at};
        for (const Tree& part : tree.inside) now = each(now, part);
        return now;
      }
      case Tree::Kind::repeat:
        return repeated(tree, at);
      case Tree::Kind::call: {
        if (at == text_.size() || text_[at] != '(') return {};
        Ends closed;
        for (size_t end : ends(rule_, at + 1))
          if (end < text_.size() && text_[end] == ')') closed.insert(end + 1);
        return closed;
      }
    }
    return {};
  }
  Ends each(const Ends& from, const Tree& part) {
    Ends all;
    for (size_t at : from) all.merge(ends(part, at));
    return all;
  }
  Ends repeated(const Tree& tree, size_t at) {
    Ends now{at}, all;
    if (tree.low == 0) all = now;
    // After as many as the text has bytes, and those that have to be, nothing new comes.
    const size_t most = std::min<size_t>(tree.high, text_.size() + tree.low + 1);
    for (size_t i = 1; i <= most; ++i) {
      now = each(now, tree.inside[0]);
      if (i >= tree.low) all.insert(now.begin(), now.end());
    }
    return all;
  }

  const Tree& rule_;
  std::string_view text_;
  std::map<std::pair<const Tree*, size_t>, Ends> known_;
};

TEST(Automaton, MatchesWhatItsDefinitionDoes) {
  test::Random random("grammars");
  int64_t matched = 0, recursive = 0;
  for (int round = 0; round < 1500; ++round) {
    const Tree tree = random_tree(random, 4, random.uniform() < 0.5);
    GrammarBuilder builder("test");
    RuleId self = builder.rule("self"), inner = builder.rule("inner");
    builder.define(inner, build(builder, tree, self));
    builder.define(self,
                   builder.sequence({builder.text("("), builder.call(inner), builder.text(")")}));
    Expr root = build(builder, tree, self);
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = builder.build(root);
    } catch (const Error& e) {  // nothing matches what always calls itself
      EXPECT_NE(std::string(e.what()).find("never ends"), std::string::npos) << e.what();
      continue;
    }
    for (int i = 0; i < 30; ++i) {
      std::string text;
      if (i % 2 == 0) text = sample(tree, tree, random, 7).substr(0, 16);
      for (int64_t size = random.between(0, i % 2 == 0 ? 1 : 9); size > 0; --size)
        text += "aaabb()"[random.between(0, 6)];
      const bool is_match = Definition(tree, text).ends(tree, 0).contains(text.size());
      ASSERT_EQ(matches(*grammar, text), is_match) << text << " round " << round;
      matched += is_match;
      recursive += is_match && text.find('(') != std::string::npos;
    }
  }
  EXPECT_GT(matched, 1000);
  EXPECT_GT(recursive, 100);
}

TEST(Automaton, CountsOfAnySizeTakeOneNode) {
  GrammarBuilder builder("test");
  auto grammar = builder.build(builder.repeat(builder.text("ab"), 2, 1'000'000'000));
  EXPECT_LT(grammar->nodes.size(), 10u);
  EXPECT_FALSE(matches(*grammar, "ab"));
  EXPECT_TRUE(matches(*grammar, "abab"));
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "ab";
  EXPECT_TRUE(matches(*grammar, many));
}

TEST(Automaton, NestedCountsAreExact) {
  GrammarBuilder builder("test");
  Expr pair = builder.repeat(builder.text("a"), 2, 3);
  Expr groups = builder.repeat(builder.sequence({pair, builder.text(";")}), 2, 2);
  auto grammar = builder.build(groups);
  EXPECT_TRUE(matches(*grammar, "aa;aaa;"));
  for (const char* text : {"a;aa;", "aa;aaaa;", "aa;", "aa;aa;aa;", "aa;aa"})
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

TEST(Automaton, ACountCanFollowACall) {
  GrammarBuilder builder("test");
  Expr rule = builder.rule_of("a", builder.text("a"));
  auto grammar = builder.build(builder.sequence({rule, builder.repeat(builder.text("b"), 2, 3)}));
  EXPECT_TRUE(matches(*grammar, "abb"));
  EXPECT_TRUE(matches(*grammar, "abbb"));
  for (const char* text : {"a", "ab", "abbbb"}) EXPECT_FALSE(matches(*grammar, text)) << text;
}

TEST(Automaton, TextsShareBeginnings) {
  GrammarBuilder builder("test");
  std::vector<std::string> texts{"", "a", "ab", "abc", "b", "xyz", "xyw", "ab"};
  auto grammar = builder.build(builder.one_of(texts));
  for (const std::string& text : texts) EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char* text : {"c", "x", "xy", "abcd", "bb"}) EXPECT_FALSE(matches(*grammar, text));
}

// Depth is limited, and what begins within the limit always finds its end.
TEST(Automaton, NestingEndsBeforeTheLimit) {
  const auto grammar = compile({SourceKind::gbnf, R"g(root ::= "(" root? ")" "!")g"}, "test");
  State state = state_after(*grammar, "");
  StepBudget budget(100'000'000);
  size_t depth = 0;
  for (; depth < 10'000; ++depth) {
    State deeper = state.next(*grammar, '(', budget);
    if (deeper.dead()) break;
    state = deeper;
  }
  EXPECT_GT(depth, 100u);
  EXPECT_LE(depth, kMaxDepth + 1);
  for (size_t i = 0; i < depth; ++i) state = state.next(*grammar, ")!", budget);
  EXPECT_TRUE(state.only_ends());
}

TEST(Automaton, SaysWhenATextMatchesInTooManyWays) {
  const auto grammar = compile(
      {SourceKind::regex, "(.{0,900}a){0,900}(.{0,900}b){0,900}(.{0,900}a){0,900}"}, "test");
  StepBudget budget(1'000'000);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += i % 3 == 0 ? 'a' : 'b';
  EXPECT_THROW(State::start(*grammar, budget).next(*grammar, text, budget), Error);
}

}  // namespace
}  // namespace sluice::grammar
