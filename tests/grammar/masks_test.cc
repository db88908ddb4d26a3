// Masks of tokens: exact, and a walk through them always arrives.
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/json.h"
#include "src/grammar/token_masks.h"
#include "tests/grammar/matching.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice::grammar {
namespace {

// All bytes, and random pieces of JSON.
std::vector<std::string> vocabulary(test::Random& random) {
  std::vector<std::string> tokens{""};
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  constexpr std::string_view kText =
      R"({"name": "value", "a": [1, 2.5e3, true, null], "größe": {"x": -10}, "b\n": "\"ab\"", })"
      "{\n  \"items\": [\n    \"日本\",\n    false\n  ]\n}aaaaaaaa  2024-01-31 abcdefgh";
  for (int i = 0; i < 700; ++i) {
    const auto at = static_cast<size_t>(random.between(0, kText.size() - 1));
    tokens.emplace_back(kText.substr(at, static_cast<size_t>(random.between(2, 9))));
  }
  return tokens;
}

bool holds(TokenBits bits, size_t id) { return (bits[id / 64] >> (id % 64) & 1) != 0; }

std::vector<GrammarSource> sources() {
  std::vector<GrammarSource> all{{SourceKind::json_object, {}},
                                 {SourceKind::regex, "(a{0,300}b){2,3}|[^a]{3,200}x"},
                                 {SourceKind::choice, R"(["true", "trust", "a", "größe"])"},
                                 {SourceKind::gbnf, "root ::= \"a\"* (\"[\" root \"]\")?"}};
  std::ifstream in(test::source_dir() / "tests/data/grammar/schemas.jsonl");
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    if (number++ % (test::kSanitized ? 12 : 3) != 0) continue;
    all.push_back({SourceKind::json_schema, Json::parse(line).at("schema").get<std::string>()});
  }
  return all;
}

// Walks by random logits; what ends is likelier the longer the text is.
std::string random_walk(const std::shared_ptr<const Grammar>& grammar, TokenMasks& masks,
                        test::Random& random, bool compare) {
  StepBudget budget(1'000'000'000);
  State state = State::start(*grammar, budget);
  std::string text;
  for (int step = 0;; ++step) {
    TokenBits bits = masks.find(grammar, state, text.empty());
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < masks.table().vocab_size(); ++id) {
      const bool is_allowed = holds(bits, static_cast<size_t>(id));
      if (is_allowed) allowed.push_back(id);
      if (!compare || step % 7 != 0) continue;
      const std::string_view token = masks.table().text(id, text.empty());
      const bool goes_on = !token.empty() && !state.next(*grammar, token, budget).dead();
      EXPECT_EQ(is_allowed, goes_on) << text << " + " << token;
    }
    if (state.can_end() && (allowed.empty() || random.between(0, 3) == 0)) return text;
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing goes on after " << text;
      return text;
    }
    // After a while what closes brackets and quotes is preferred.
    int32_t chosen = allowed[static_cast<size_t>(random.between(0, std::ssize(allowed) - 1))];
    const bool in_string = holds(bits, 1 + 'z');
    for (int32_t id : allowed) {
      const std::string_view token = masks.table().text(id, false);
      const bool closes = in_string ? token == "\"" : token == "}" || token == "]";
      if (step > 40 && closes) chosen = id;
    }
    const std::string_view token = masks.table().text(chosen, text.empty());
    state = state.next(*grammar, token, budget);
    text += token;
    if (step > 4000) {
      ADD_FAILURE() << "no end: " << text.substr(0, 200);
      return text;
    }
  }
}

TEST(Masks, RandomWalksEndInTextsThatMatchAndMasksAreExact) {
  test::Random random("masks");
  TokenMasks masks(std::make_shared<const TokenTable>(vocabulary(random)));
  for (const GrammarSource& source : sources()) {
    SCOPED_TRACE(source.text);
    const auto grammar = compile(source, "test");
    for (int i = 0; i < 3; ++i) {
      const std::string text = random_walk(grammar, masks, random, i == 0);
      EXPECT_TRUE(matches(*grammar, text)) << text;
      const bool json =
          source.kind == SourceKind::json_schema || source.kind == SourceKind::json_object;
      EXPECT_TRUE(!json || Json::accept(text)) << text;
    }
  }
  EXPECT_GT(masks.stats().found, 100);
}

TEST(Masks, CountsBeyondATokenShareAMask) {
  TokenMasks masks(std::make_shared<const TokenTable>(std::vector<std::string>{"a", "aa", "\""}));
  const auto grammar = compile({SourceKind::regex, "a{0,100000}"}, "test");
  StepBudget budget(100'000'000);
  State state = State::start(*grammar, budget);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(masks.find(grammar, state, false)[0], 3u);
    state = state.next(*grammar, 'a', budget);
  }
  EXPECT_LE(masks.stats().walks, 2);
}

TEST(Masks, TheLastRepetitionsAreCounted) {
  TokenMasks masks(
      std::make_shared<const TokenTable>(std::vector<std::string>{"a", "aa", "aaa", "b"}));
  const auto grammar = compile({SourceKind::regex, "a{5}b"}, "test");
  constexpr uint64_t kWant[] = {0b0111, 0b0111, 0b0111, 0b0011, 0b0001, 0b1000, 0};
  std::string text;
  for (uint64_t want : kWant) {
    EXPECT_EQ(masks.find(grammar, state_after(*grammar, text), false)[0], want) << text;
    text += text.size() < 5 ? 'a' : 'b';
  }
}

TEST(Masks, HeldInBoundedMemoryWhateverComes) {
  test::Random random("bounded");
  std::vector<std::string> tokens = vocabulary(random);
  TokenMasks masks(std::make_shared<const TokenTable>(tokens));
  const auto grammar = compile({SourceKind::regex, "(.{0,40}[ab].{0,40}){0,50}\n"}, "test");
  for (int i = 0; i < 40; ++i) {
    std::string text;
    for (int64_t n = random.between(0, 60); n > 0; --n) text += "abc"[random.between(0, 2)];
    StepBudget budget(100'000'000);
    try {
      masks.find(grammar, State::start(*grammar, budget).next(*grammar, text, budget), false);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("too ambiguous"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace sluice::grammar
