// Grammars with the tokens of tokenizers.
#include "src/grammar/grammars.h"

#include <gtest/gtest.h>

#include "src/grammar/token_masks.h"
#include "tests/grammar/matching.h"
#include "tests/text/small_tokenizer.h"

namespace sluice::grammar {
namespace {

bool allows(TokenBits bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

// Tokens as SentencePiece has them: a space before each word, taken off the beginning of a text.
Tokenizer word_pieces() {
  Json json = test::small_tokenizer();
  Json vocab = Json::object();
  for (const char* token : {"\u2581a", "a", "\u2581", "b", "<0x62>", "</s>"})
    vocab[token] = vocab.size();
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = Json::array();
  json["pre_tokenizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  Json end = test::added_token("</s>", 5);
  end["special"] = true;
  json["added_tokens"] = {end};
  return test::load_tokenizer(json);
}

TEST(Grammars, SpecialTokensComeWhereACompositionNamesThem) {
  const Tokenizer tokenizer = word_pieces();
  Grammars grammars(tokenizer, 8);
  auto found =
      grammars.find({SourceKind::composition,
                     R"({"sequence": [{"without": "</s>"}, {"token": "</s>"}, {"text": "b"}]})"},
                    "test");
  TokenMasks masks(found->tokens);
  StepBudget budget(1'000'000);
  State state = State::start(*found->grammar, budget);
  for (int32_t id : {1, 3}) {
    EXPECT_TRUE(allows(masks.find(found->grammar, state, false), id));
    EXPECT_TRUE(allows(masks.find(found->grammar, state, false), 5));
    state = state.next(*found->grammar, found->tokens->text(id, false), budget);
  }
  state = state.next(*found->grammar, found->tokens->text(5, false), budget);
  EXPECT_FALSE(allows(masks.find(found->grammar, state, false), 1));
  EXPECT_FALSE(allows(masks.find(found->grammar, state, false), 5));
  EXPECT_TRUE(allows(masks.find(found->grammar, state, false), 3));
}

TEST(Grammars, TokensAtTheBeginningHaveTheirOwnText) {
  const Tokenizer tokenizer = word_pieces();
  Grammars grammars(tokenizer, 8);
  auto found = grammars.find({SourceKind::regex, "a ?ab"}, "test");
  TokenMasks masks(found->tokens);
  StepBudget budget(1'000'000);
  State state = State::start(*found->grammar, budget);
  TokenBits first = masks.find(found->grammar, state, true);
  EXPECT_TRUE(allows(first, 0)) << "its space is taken off";
  EXPECT_TRUE(allows(first, 1));
  EXPECT_FALSE(allows(first, 2)) << "nothing is left of it";
  EXPECT_FALSE(allows(first, 3));
  state = state.next(*found->grammar, found->tokens->text(0, true), budget);
  TokenBits then = masks.find(found->grammar, state, false);
  EXPECT_TRUE(allows(then, 0));
  EXPECT_TRUE(allows(then, 1));
  EXPECT_TRUE(allows(then, 2));
  EXPECT_FALSE(allows(then, 5)) << "special tokens match nothing";
  state = state.next(*found->grammar, found->tokens->text(1, false), budget);
  then = masks.find(found->grammar, state, false);
  EXPECT_TRUE(allows(then, 3));
  EXPECT_TRUE(allows(then, 4)) << "a token of one byte";
  EXPECT_FALSE(allows(then, 6)) << "the model has it, the tokenizer has not";
}

TEST(Grammars, EqualSourcesShareOne) {
  const Tokenizer tokenizer = test::load_tokenizer(test::small_tokenizer());
  Grammars grammars(tokenizer, tokenizer.vocab_size());
  auto one = grammars.find({SourceKind::regex, "a"}, "test");
  EXPECT_EQ(grammars.find({SourceKind::regex, "a"}, "other"), one);
  EXPECT_NE(grammars.find({SourceKind::gbnf, "root ::= \"a\""}, "test"), one);
  EXPECT_EQ(grammars.find({SourceKind::regex, "b"}, "test")->tokens, one->tokens);
  EXPECT_THROW(grammars.find({SourceKind::regex, "("}, "test"), Error);
}

TEST(Grammars, ChoiceIsAListOfStrings) {
  EXPECT_TRUE(matches(SourceKind::choice, R"(["yes", "no", "größe"])", "größe"));
  EXPECT_FALSE(matches(SourceKind::choice, R"(["yes", "no"])", "ye"));
  for (const char* list : {"[]", "[1]", "\"a\"", "{}", "[\"a\", null]"})
    EXPECT_NE(refusal(SourceKind::choice, list), "") << list;
}

TEST(Grammars, ATokenizerWhoseTokensLookAheadIsRefused) {
  Json json = test::small_tokenizer();
  json["decoder"] = {{"type", "BPEDecoder"}, {"suffix", "</w>"}};
  const Tokenizer tokenizer = test::load_tokenizer(json);
  Grammars grammars(tokenizer, tokenizer.vocab_size());
  EXPECT_THROW(grammars.find({SourceKind::json_object, {}}, "test"), Error);
}

}  // namespace
}  // namespace sluice::grammar
