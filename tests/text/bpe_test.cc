#include "src/text/bpe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/text/token_stream.h"
#include "src/text/tokenizer.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using test::load_tokenizer;
using test::small_tokenizer;

using Ids = std::vector<int32_t>;

// A vocabulary of single letters and what `merges` make of them; no pre-tokenizer, no byte
// alphabet.
Json plain_tokenizer(const std::string& letters,
                     const std::vector<std::pair<std::string, std::string>>& merges) {
  Json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = {{"type", "Fuse"}};
  Json vocab = Json::object();
  for (char letter : letters) vocab[std::string(1, letter)] = vocab.size();
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    list.push_back({left, right});
  }
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = list;
  return file;
}

// The definition: merge the pair of the lowest rank, leftmost first, one at a time.
std::vector<std::string> merge_naively(
    const std::string& text, const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (char c : text) parts.emplace_back(1, c);
  for (;;) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == std::pair(parts[i], parts[i + 1])) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// Makes merges of the letters a to d.
std::vector<std::pair<std::string, std::string>> random_merges(test::Random& random) {
  std::vector<std::string> tokens = {"a", "b", "c", "d"};
  std::vector<std::pair<std::string, std::string>> merges;
  auto pick = [&] {
    return tokens[static_cast<size_t>(random.between(0, static_cast<int64_t>(tokens.size()) - 1))];
  };
  for (int64_t n = random.between(0, 25); n > 0; --n) {
    std::pair merge(pick(), pick());
    if (std::ranges::find(merges, merge) != merges.end()) continue;
    merges.push_back(merge);
    tokens.push_back(merge.first + merge.second);
  }
  return merges;
}

std::string random_letters(test::Random& random) {
  std::string text;
  for (int64_t n = random.between(0, 40); n > 0; --n)
    text += static_cast<char>('a' + random.between(0, 3));
  return text;
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> tokens;
  for (int32_t id : tokenizer.encode(text, false)) tokens.emplace_back(tokenizer.token(id));
  return tokens;
}

TEST(Bpe, MergesAsDefined) {
  test::Random random("bpe merges");
  for (int round = 0; round < 60; ++round) {
    auto merges = random_merges(random);
    Tokenizer tokenizer = load_tokenizer(plain_tokenizer("abcd", merges));
    for (int i = 0; i < 20; ++i) {
      std::string text = random_letters(random);
      ASSERT_EQ(tokens_of(tokenizer, text), merge_naively(text, merges)) << text;
    }
  }
}

// A piece that is longer than what is merged at a time is cut where no merge can cross.
TEST(Bpe, MergesLongPiecesPartByPart) {
  test::Random random("bpe long pieces");
  for (int round = 0; round < 20; ++round) {
    auto merges = random_merges(random);
    std::string text;
    std::vector<std::string> tokens;
    while (text.size() < 20'000) {
      std::string word = random_letters(random);
      for (std::string& token : merge_naively(word, merges)) tokens.push_back(std::move(token));
      tokens.emplace_back("|");
      text += word + "|";
    }
    ASSERT_EQ(tokens_of(load_tokenizer(plain_tokenizer("abcd|", merges)), text), tokens);
  }
}

TEST(Bpe, MergesAsStringsMeanTheSame) {
  Json file = small_tokenizer();
  Tokenizer pairs = load_tokenizer(file);
  Json& merges = file["model"]["merges"];
  for (Json& merge : merges)
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  merges.insert(merges.begin(), "#version: 0.2");
  file["model"].erase("type");  // files of that time do not name it
  Tokenizer strings = load_tokenizer(file);
  EXPECT_EQ(strings.encode("hello hello", false), pairs.encode("hello hello", false));
  EXPECT_EQ(strings.encode("hello", false), (Ids{258, 'o'}));
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  Json file = small_tokenizer();
  file["model"]["vocab"]["hello"] = 260;
  EXPECT_EQ(load_tokenizer(file).encode("hello", false), (Ids{258, 'o'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(load_tokenizer(file).encode("hello", false), (Ids{260}));
}

TEST(Bpe, CharactersOutsideOfTheVocabulary) {
  Json file = plain_tokenizer("ab?", {});
  EXPECT_EQ(load_tokenizer(file).encode("axyb", false), (Ids{0, 1}));
  file["model"]["unk_token"] = "?";
  EXPECT_EQ(load_tokenizer(file).encode("axyb\u00E9", false), (Ids{0, 2, 2, 1, 2}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(load_tokenizer(file).encode("axyb\u00E9", false), (Ids{0, 2, 1, 2}));
  file["model"]["byte_fallback"] = true;
  file["model"]["vocab"]["<0xC3>"] = 3;
  file["model"]["vocab"]["<0xA9>"] = 4;
  EXPECT_EQ(load_tokenizer(file).encode("axb\u00E9\u00C8", false), (Ids{0, 2, 1, 3, 4, 2}));
}

TEST(Bpe, OneLongRunIsNotQuadratic) {
  Tokenizer tokenizer =
      load_tokenizer(plain_tokenizer("ab", {{"a", "a"}, {"aa", "aa"}, {"aa", "b"}}));
  const std::string run(1'000'000, 'a');
  // Far below a second. If it were quadratic, it would take longer than run_gtest.py gives a test.
  EXPECT_EQ(tokenizer.encode(run, false), Ids(250'000, *tokenizer.id_of("aaaa")));
}

// Symbols that go on with a word, or end one: ids are those of tokenizers 0.23.3.
TEST(Bpe, PrefixesAndSuffixesOfSymbols) {
  const Json cases =
      Json::parse(test::read_file(test::source_dir() / "tests/data/text/bpe_affixes.json"));
  ASSERT_EQ(cases.size(), 3u);
  for (const Json& one : cases) {
    const Tokenizer tokenizer = load_tokenizer(one.at("tokenizer"));
    ASSERT_GE(one.at("rows").size(), 100u);
    for (const Json& row : one.at("rows")) {
      const auto text = row.at("text").get<std::string>();
      EXPECT_EQ(tokenizer.encode(text, false), row.at("ids").get<Ids>()) << row;
      TokenStream stream(tokenizer, false);
      Ids ids;
      for (char byte : text) stream.add(std::string_view(&byte, 1), ids);
      stream.finish({}, ids);
      EXPECT_EQ(ids, row.at("ids").get<Ids>()) << row;
    }
  }
}

}  // namespace
}  // namespace sluice
