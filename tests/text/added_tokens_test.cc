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

// Bytes are their own ids in the small tokenizer; added tokens have 260 and more.
Ids encode(const std::vector<Json>& added, const std::string& text, Json file = small_tokenizer()) {
  for (const Json& token : added) file["added_tokens"].push_back(token);
  return load_tokenizer(file).encode(text, false);
}

Json with(Json token, const char* flag) {
  token[flag] = true;
  return token;
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceMatches) {
  std::vector<Json> added = {added_token("<a", 260), added_token("<a>b", 261),
                             added_token(">b", 262), added_token("cb", 263)};
  EXPECT_EQ(encode(added, "x<a>b"), (Ids{'x', 261}));
  EXPECT_EQ(encode(added, "<a>cb"), (Ids{260, '>', 263}));
  EXPECT_EQ(encode(added, "<a"), (Ids{260}));
  EXPECT_EQ(encode(added, "<>b"), (Ids{'<', 262}));
  EXPECT_EQ(encode(added, ""), (Ids{}));
}

TEST(AddedTokens, SingleWord) {
  std::vector<Json> added = {with(added_token("cat", 260), "single_word")};
  EXPECT_EQ(encode(added, "cat-cat"), (Ids{260, '-', 260}));
  EXPECT_EQ(encode(added, "cats"), (Ids{'c', 'a', 't', 's'}));
  EXPECT_EQ(encode(added, "_cat"), (Ids{'_', 'c', 'a', 't'}));
  EXPECT_EQ(encode(added,
                   "\u00E9"
                   "cat"),
            (Ids{0xC3, 0xA9, 'c', 'a', 't'}));
  // A rejected match hides the shorter token inside of it.
  added.push_back(added_token("at", 261));
  EXPECT_EQ(encode(added, "cats at"), (Ids{'c', 'a', 't', 's', ' ', 261}));
}

TEST(AddedTokens, WhiteSpaceBesideGoesAlong) {
  std::vector<Json> left = {with(added_token("<m>", 260), "lstrip")};
  EXPECT_EQ(encode(left, "a \t<m> b"), (Ids{'a', 260, ' ', 'b'}));
  EXPECT_EQ(encode(left, "\u3000<m><m>"), (Ids{260, 260}));
  std::vector<Json> right = {with(added_token("<m>", 260), "rstrip")};
  EXPECT_EQ(encode(right, "a <m> \n b"), (Ids{'a', ' ', 260, 'b'}));
}

// White space that is a token, too: ids as Hugging Face tokenizers has them.
TEST(AddedTokens, StrippedWhiteSpaceThatIsAToken) {
  Json newline = added_token("\n", 260);
  EXPECT_EQ(encode({with(newline, "rstrip")}, "\n\n\nx"), (Ids{260, 260, 260, 'x'}));
  EXPECT_EQ(encode({with(newline, "lstrip")}, "\n\n\nx"), (Ids{260, 260, 260, 'x'}));
  EXPECT_EQ(encode({with(with(newline, "lstrip"), "rstrip")}, "\n\n\nx"), (Ids{260, 'x'}));
  std::vector<Json> both = {with(added_token("aa", 260), "rstrip"), added_token(" b", 261)};
  EXPECT_EQ(encode(both, "aa   bx"), (Ids{260, 261, 'x'}));
}

TEST(AddedTokens, NormalizedOnesMatchNormalizedText) {
  Json file = small_tokenizer();
  file["normalizer"] = {{"type", "Lowercase"}};
  Json token = with(added_token("Foo", 260), "normalized");
  EXPECT_EQ(encode({token}, "xFOO", file), (Ids{'x', 260}));
  EXPECT_EQ(encode({added_token("Foo", 260)}, "xFOO", file), (Ids{'x', 'f', 'o', 'o'}));
  EXPECT_EQ(encode({added_token("Foo", 260)}, "xFoo", file), (Ids{'x', 260}));
  // Decoding gives what was looked for, and does not know it as special.
  file["added_tokens"].push_back(with(token, "special"));
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.decode(Ids{260}, true), "foo");
  EXPECT_EQ(tokenizer.id_of("Foo"), 260);
}

TEST(AddedTokens, TheVocabularysIdWins) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("a", 260), with(added_token("<s>", 260), "special")};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.encode("a<s>", false), (Ids{'a', 260}));
  EXPECT_THAT(tokenizer.warnings(),
              testing::ElementsAre("tokenizer.json: added token 'a' has id 260, but 97 in Hugging "
                                   "Face tokenizers, which is used"));
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_FALSE(tokenizer.has(261));
  EXPECT_THROW(tokenizer.token(261), Error);
}

// Ids are those of Hugging Face tokenizers 0.23.
TEST(AddedTokens, IdsCountOnFromTheVocabularyWhateverTheFileSays) {
  Json file = small_tokenizer();
  file["added_tokens"] = {added_token("<y>", 900), added_token("<x>", 5), added_token("", 7),
                          added_token("<y>", 261), added_token("a", 'a'), added_token("<z>", 900)};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.encode("<x><y>a<z>", false), (Ids{261, 260, 'a', 262}));
  EXPECT_EQ(tokenizer.decode(Ids{261, 260, 5, 262}, false), "<x><y>\x05<z>");
  EXPECT_THAT(tokenizer.warnings(),
              testing::ElementsAre("tokenizer.json: added token '<y>' has id 900, but 260 in "
                                   "Hugging Face tokenizers, which is used (and 2 more)"));
}

// In a vocabulary with holes the next id may be taken.
TEST(AddedTokens, AnIdThatTheVocabularyUsesIsWarnedOf) {
  Json file = small_tokenizer();
  file["model"]["vocab"]["a"] = 260;
  file["added_tokens"] = {added_token("<s>", 260)};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_THAT(tokenizer.warnings(),
              testing::ElementsAre("tokenizer.json: tokens 'a' and '<s>' both have id 260"));
  EXPECT_EQ(tokenizer.encode("a<s>", false), (Ids{260, 260}));
  EXPECT_EQ(tokenizer.decode(Ids{260}, false), "<s>");
  // The last of two added tokens has the id; the other is not found any more.
  file["added_tokens"].push_back(added_token("a", 260));
  tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.encode("a<s>", false), (Ids{260, '<', 's', '>'}));
  EXPECT_EQ(tokenizer.decode(Ids{260}, false), "a");
}

// Tokens that tokenizer.json does not list are handled as transformers does.
TEST(AddedTokens, OfTheConfigAreFoundWhereTheVocabularyHasThem) {
  Json file = small_tokenizer();
  file["model"]["vocab"]["<s>"] = 260;
  file["model"]["vocab"]["<t>"] = 261;
  test::TempDir dir;
  test::write_file(dir / "tokenizer.json", file.dump());
  EXPECT_EQ(Tokenizer::load(dir.path()).encode("<s>", false), (Ids{'<', 's', '>'}));
  const Json config = {{"eos_token", "<s>"},
                       {"pad_token", "<pad>"},
                       {"added_tokens_decoder", {{"256", {{"content", "he"}, {"special", false}}}}},
                       {"extra_special_tokens", {{"other", "<t>"}}}};
  test::write_file(dir / "tokenizer_config.json", config.dump());
  const Tokenizer tokenizer = Tokenizer::load(dir.path());
  EXPECT_EQ(tokenizer.encode("a<s><t>hehell", false), (Ids{'a', 260, 261, 256, 256, 257}));
  EXPECT_EQ(tokenizer.decode(Ids{'a', 260, 261, 256}, true), "ahe");
  EXPECT_EQ(tokenizer.id_of("<pad>"), std::nullopt);
}

}  // namespace
}  // namespace sluice
