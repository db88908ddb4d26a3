#include "src/text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/text/tokenizer.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using test::added_token;
using test::load_tokenizer;
using test::small_tokenizer;

using Ids = std::vector<int32_t>;

// Bytes are their own ids in the small tokenizer; added tokens have 1000 and more.
Ids encode(const std::vector<Json>& added, const std::string& text, Json file = small_tokenizer()) {
  for (const Json& token : added) file["added_tokens"].push_back(token);
  return load_tokenizer(file).encode(text, false);
}

Json with(Json token, const char* flag) {
  token[flag] = true;
  return token;
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceMatches) {
  std::vector<Json> added = {added_token("<a", 1000), added_token("<a>b", 1001),
                             added_token(">b", 1002), added_token("cb", 1003)};
  EXPECT_EQ(encode(added, "x<a>b"), (Ids{'x', 1001}));
  EXPECT_EQ(encode(added, "<a>cb"), (Ids{1000, '>', 1003}));
  EXPECT_EQ(encode(added, "<a"), (Ids{1000}));
  EXPECT_EQ(encode(added, "<>b"), (Ids{'<', 1002}));
  EXPECT_EQ(encode(added, ""), (Ids{}));
}

TEST(AddedTokens, SingleWord) {
  std::vector<Json> added = {with(added_token("cat", 1000), "single_word")};
  EXPECT_EQ(encode(added, "cat-cat"), (Ids{1000, '-', 1000}));
  EXPECT_EQ(encode(added, "cats"), (Ids{'c', 'a', 't', 's'}));
  EXPECT_EQ(encode(added, "_cat"), (Ids{'_', 'c', 'a', 't'}));
  EXPECT_EQ(encode(added,
                   "\u00E9"
                   "cat"),
            (Ids{0xC3, 0xA9, 'c', 'a', 't'}));
  // A rejected match hides the shorter token inside of it.
  added.push_back(added_token("at", 1001));
  EXPECT_EQ(encode(added, "cats at"), (Ids{'c', 'a', 't', 's', ' ', 1001}));
}

TEST(AddedTokens, WhiteSpaceBesideGoesAlong) {
  std::vector<Json> left = {with(added_token("<m>", 1000), "lstrip")};
  EXPECT_EQ(encode(left, "a \t<m> b"), (Ids{'a', 1000, ' ', 'b'}));
  EXPECT_EQ(encode(left, "\u3000<m><m>"), (Ids{1000, 1000}));
  std::vector<Json> right = {with(added_token("<m>", 1000), "rstrip")};
  EXPECT_EQ(encode(right, "a <m> \n b"), (Ids{'a', ' ', 1000, 'b'}));
}

// What Hugging Face tokenizers gives for white space that is a token, too.
TEST(AddedTokens, StrippedWhiteSpaceThatIsAToken) {
  Json newline = added_token("\n", 1001);
  EXPECT_EQ(encode({with(newline, "rstrip")}, "\n\n\nx"), (Ids{1001, 1001, 1001, 'x'}));
  EXPECT_EQ(encode({with(newline, "lstrip")}, "\n\n\nx"), (Ids{1001, 1001, 1001, 'x'}));
  EXPECT_EQ(encode({with(with(newline, "lstrip"), "rstrip")}, "\n\n\nx"), (Ids{1001, 'x'}));
  std::vector<Json> both = {with(added_token("aa", 1000), "rstrip"), added_token(" b", 1001)};
  EXPECT_EQ(encode(both, "aa   bx"), (Ids{1000, 1001, 'x'}));
}

TEST(AddedTokens, NormalizedOnesMatchNormalizedText) {
  Json file = small_tokenizer();
  file["normalizer"] = {{"type", "Lowercase"}};
  Json token = with(added_token("Foo", 1000), "normalized");
  EXPECT_EQ(encode({token}, "xFOO", file), (Ids{'x', 1000}));
  EXPECT_EQ(encode({added_token("Foo", 1000)}, "xFOO", file), (Ids{'x', 'f', 'o', 'o'}));
  EXPECT_EQ(encode({added_token("Foo", 1000)}, "xFoo", file), (Ids{'x', 1000}));
  // Decoding gives what was looked for, and does not know it as special.
  file["added_tokens"].push_back(with(token, "special"));
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.decode(Ids{1000}, true), "foo");
  EXPECT_EQ(tokenizer.id_of("Foo"), 1000);
}

TEST(AddedTokens, TheVocabularysIdWins) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("a", 1000), with(added_token("<s>", 300), "special")};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.encode("a<s>", false), (Ids{'a', 300}));
  EXPECT_THAT(tokenizer.warnings(),
              testing::ElementsAre(testing::StartsWith("tokenizer.json: added token 'a'")));
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_FALSE(tokenizer.has(299));
  EXPECT_THROW(tokenizer.token(299), Error);
}

TEST(AddedTokens, AnIdThatTheVocabularyUsesIsWarnedOf) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("<s>", 'a')};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_THAT(tokenizer.warnings(),
              testing::ElementsAre("tokenizer.json: tokens 'a' and '<s>' both have id 97"));
  EXPECT_EQ(tokenizer.decode(Ids{'a'}, false), "<s>");
}

}  // namespace
}  // namespace sluice
