#include "src/text/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/random.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using test::added_token;
using test::load_tokenizer;
using test::small_tokenizer;

using Ids = std::vector<int32_t>;

TEST(Detokenizer, NeverGivesHalfACharacter) {
  Tokenizer tokenizer = load_tokenizer(small_tokenizer());
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.add('a'), "a");
  EXPECT_EQ(detokenizer.add(0xF0), "");
  EXPECT_EQ(detokenizer.add(0x9F), "");
  EXPECT_EQ(detokenizer.add(0x98), "");
  EXPECT_EQ(detokenizer.add(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.add(0xC3), "");
  EXPECT_EQ(detokenizer.add('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(detokenizer.add(0xC3), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, AddsUpToDecode) {
  Json file = small_tokenizer();
  Json special = added_token("<s>", 260);
  special["special"] = true;
  file["added_tokens"] = {special, added_token("\u00E9<m>", 261)};
  Tokenizer tokenizer = load_tokenizer(file);
  test::Random random("detokenizer");
  for (int round = 0; round < 500; ++round) {
    bool skip = random.between(0, 1) == 1;
    Detokenizer detokenizer(tokenizer, skip);
    Ids ids;
    std::string text;
    for (int64_t n = random.between(0, 50); n > 0; --n) {
      // Ids above 261 and between 260 and 299 have no token.
      ids.push_back(static_cast<int32_t>(random.between(0, 1) ? random.between(0xB0, 0xFF)
                                                              : random.between(-1, 264)));
      std::string piece = detokenizer.add(ids.back());
      EXPECT_EQ(to_valid_utf8(piece), piece);
      EXPECT_FALSE(piece.ends_with(kReplacementCharacter));
      text += piece;
    }
    text += detokenizer.finish();
    EXPECT_EQ(text, tokenizer.decode(ids, skip));
  }
}

TEST(Detokenizer, SpecialTokensAreSkippedOnRequest) {
  Json file = small_tokenizer();
  Json special = added_token("<s>", 260);
  special["special"] = true;
  file["added_tokens"] = {special, added_token("<t>", 261)};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.decode(Ids{'a', 260, 261, 'b'}, false), "a<s><t>b");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 260, 261, 'b'}, true), "a<t>b");
}

TEST(Detokenizer, WithoutADecoderTokensAreJoinedWithSpaces) {
  Json file = small_tokenizer();
  file["decoder"] = nullptr;
  EXPECT_EQ(load_tokenizer(file).decode(Ids{'a', 256, 'b'}, false), "a he b");
}

// Tokens as in the files of Llama 2 and Gemma; <0xE2> <0x82> <0xAC> are one character.
TEST(Detokenizer, SentencePieceSpacesAndBytes) {
  Json file = small_tokenizer();
  const char* space = "\u2581";
  file["model"]["vocab"] = {{"<0xE2>", 0},
                            {"<0x82>", 1},
                            {"<0xac>", 2},
                            {"<0xG0>", 3},
                            {"a", 4},
                            {std::string(space) + "b", 5},
                            {std::string(space) + space, 6}};
  file["model"]["merges"] = Json::array();
  file["added_tokens"] = Json::array();
  Json strip{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  Json replace{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}};
  Json steps{replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip};
  file["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.decode(Ids{5, 5, 4, 6, 3}, false), "b ba  <0xG0>");
  EXPECT_EQ(tokenizer.decode(Ids{6, 4}, false), " a");
  EXPECT_EQ(tokenizer.decode(Ids{4, 0, 1, 2, 0, 1, 2, 4}, false), "a\u20AC\u20ACa");
  // A run of bytes is UTF-8, or none of it is.
  EXPECT_EQ(tokenizer.decode(Ids{4, 0, 1, 2, 0, 4}, false), "a\uFFFD\uFFFD\uFFFD\uFFFDa");
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.add(5), "b");
  EXPECT_EQ(detokenizer.add(0), "");
  EXPECT_EQ(detokenizer.add(1), "");
  EXPECT_EQ(detokenizer.add(2), "\u20AC");
  EXPECT_EQ(detokenizer.add(5), " b");

  steps[2] = strip;  // of every token, before they are joined
  steps[3] = {{"type", "Fuse"}};
  file["decoder"]["decoders"] = steps;
  EXPECT_EQ(load_tokenizer(file).decode(Ids{5, 5, 4, 6}, false), "bba ");
}

// A million tokens that complete nothing: each step must not look at all that is held back.
// Behind bytes or Fuse all tokens are one, the first and the last.
TEST(Detokenizer, StepsBehindFuse) {
  Json file = small_tokenizer();
  const Json words = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}};
  for (const char* type : {"ByteLevel", "Fuse"}) {
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", type}}, words}}};
    EXPECT_EQ(load_tokenizer(file).decode(Ids{'a', 'b', '#', '#'}, false), "ab##") << type;
  }
  file["decoder"]["decoders"] = {words, {{"type", "Fuse"}}};
  EXPECT_EQ(load_tokenizer(file).decode(Ids{'a', 'b'}, false), "a b");
}

TEST(Detokenizer, PatternsMatchNoPartOfACharacter) {
  Json file = small_tokenizer();
  const Json replace{{"type", "Replace"}, {"pattern", {{"Regex", "."}}}, {"content", "_"}};
  file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteLevel"}}, replace}}};
  const Tokenizer tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer.bytes('a', true), "_");
  EXPECT_EQ(tokenizer.bytes(0xF0, true), "\xF0");
}

TEST(Detokenizer, TokensOfSpeech) {
  Json file = small_tokenizer();
  file["decoder"] = {
      {"type", "CTC"}, {"pad_token", "~"}, {"word_delimiter_token", "|"}, {"cleanup", true}};
  EXPECT_EQ(load_tokenizer(file).decode(Ids{'~', 'a', 'a', '~', 'a', '|', '|', 'b', '.'}, false),
            "aa b.");
}

TEST(Detokenizer, HoldingBackCostsNoTime) {
  Tokenizer tokenizer = load_tokenizer(small_tokenizer());
  Detokenizer detokenizer(tokenizer, false);
  for (int i = 0; i < 1'000'000; ++i) ASSERT_EQ(detokenizer.add(0x80), "");
  EXPECT_EQ(detokenizer.finish().size(), 3'000'000u);
}

}  // namespace
}  // namespace sluice
