#include "src/text/unigram.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"
#include "tests/support/random.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

struct Token {
  std::string text;
  double score;
};

// Token 0 is the unknown one; nothing is cut before, or added.
Json unigram_tokenizer(const std::vector<Token>& tokens) {
  Json file = test::small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = {{"type", "Fuse"}};
  Json vocab = Json::array({Json::array({"<unk>", 0})});
  for (const Token& token : tokens) vocab.push_back(Json::array({token.text, token.score}));
  file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  return file;
}

// Makes tokens of the letters a to d, with scores so coarse that many ways are equally good.
std::vector<Token> random_tokens(test::Random& random, int64_t longest) {
  std::vector<Token> tokens;
  for (int64_t n = random.between(1, 25); n > 0; --n) {
    std::string text;
    for (int64_t i = random.between(1, longest); i > 0; --i)
      text += static_cast<char>('a' + random.between(0, 2));
    if (std::ranges::find(tokens, text, &Token::text) == tokens.end())
      tokens.push_back({text, static_cast<double>(-random.between(1, 6))});
  }
  return tokens;
}

// The definition: the best way to each place, the first one found of several; runs of the unknown
// token are one.
Ids encode_naively(const std::string& text, const std::vector<Token>& tokens) {
  double lowest = 0;
  for (const Token& token : tokens) lowest = std::min(lowest, token.score);
  struct Way {
    double score = 0;
    size_t from = std::string::npos;
    int32_t id = 0;
  };
  std::vector<Way> best(text.size() + 1);
  for (size_t at = 0; at < text.size(); ++at) {
    auto reach = [&](size_t length, double score, int32_t id) {
      Way& way = best[at + length];
      score += best[at].score;
      if (way.from == std::string::npos || score > way.score) way = {score, at, id};
    };
    bool single = false;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (text.compare(at, tokens[i].text.size(), tokens[i].text) != 0) continue;
      reach(tokens[i].text.size(), tokens[i].score, static_cast<int32_t>(i) + 1);
      single = single || tokens[i].text.size() == 1;
    }
    if (!single) reach(1, lowest - 10, 0);
  }
  Ids ids;
  for (size_t at = text.size(); at > 0; at = best[at].from)
    if (ids.empty() || best[at].id != 0 || ids.back() != 0) ids.push_back(best[at].id);
  std::ranges::reverse(ids);
  return ids;
}

std::string random_letters(test::Random& random, int64_t most) {
  std::string text;
  for (int64_t n = random.between(0, most); n > 0; --n)
    text += static_cast<char>('a' + random.between(0, 3));
  return text;
}

TEST(Unigram, TakesTheBestWay) {
  test::Random random("unigram");
  for (int round = 0; round < 100; ++round) {
    auto tokens = random_tokens(random, 5);
    Tokenizer tokenizer = test::load_tokenizer(unigram_tokenizer(tokens));
    for (int i = 0; i < 20; ++i) {
      std::string text = random_letters(random, 40);
      ASSERT_EQ(tokenizer.encode(text, false), encode_naively(text, tokens)) << text;
    }
  }
}

// A long piece is decided part by part: as far as all ways that may still win are the same.
// In time that is linear: a run of them is one, or its bytes.
TEST(Unigram, OfATokenThatIsThereTwiceTheLastCounts) {
  const Tokenizer tokenizer =
      test::load_tokenizer(unigram_tokenizer({{"a", -9}, {"b", -1}, {"ab", -4}, {"a", -2}}));
  EXPECT_EQ(tokenizer.encode("aab", false), (Ids{4, 4, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 2}, false), "ab");
}

TEST(Unigram, TakesLongRunsOfUnknownCharacters) {
  std::vector<Token> tokens{{"a", -1}};
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "\u00e9";
  const Ids unknown = test::load_tokenizer(unigram_tokenizer(tokens)).encode(text, false);
  EXPECT_EQ(unknown, Ids{0});
  for (int byte = 0; byte < 256; ++byte) tokens.push_back({fmt::format("<0x{:02X}>", byte), -9});
  Json file = unigram_tokenizer(tokens);
  file["model"]["byte_fallback"] = true;
  const Ids bytes = test::load_tokenizer(file).encode(text, false);
  ASSERT_EQ(bytes.size(), text.size());
  for (size_t i = 0; i < text.size(); ++i)
    ASSERT_EQ(bytes[i], 2 + static_cast<uint8_t>(text[i])) << i;
}

TEST(Unigram, DecidesLongPiecesPartByPart) {
  test::Random random("unigram long pieces");
  for (int round = 0; round < 20; ++round) {
    auto tokens = random_tokens(random, 40);
    std::string text = random_letters(random, 20'000);
    Tokenizer tokenizer = test::load_tokenizer(unigram_tokenizer(tokens));
    ASSERT_EQ(tokenizer.encode(text, false), encode_naively(text, tokens));
  }
}

}  // namespace
}  // namespace sluice
