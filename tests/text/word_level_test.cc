#include "src/text/word_level.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/base/error.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

Json word_tokenizer() {
  Json file = test::small_tokenizer();
  file["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  file["decoder"] = nullptr;
  file["model"] = {{"type", "WordLevel"},
                   {"unk_token", "<unk>"},
                   {"vocab", {{"<unk>", 0}, {"ab", 1}, {"abc", 2}}}};
  return file;
}

TEST(WordLevel, HasATokenForEachWord) {
  const Tokenizer tokenizer = test::load_tokenizer(word_tokenizer());
  EXPECT_EQ(tokenizer.encode("ab  abc a abcd", false), (Ids{1, 2, 0, 0}));
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{1, 2}, false), "ab abc");
}

TEST(WordLevel, NeedsItsUnknownTokenForUnknownWordsOnly) {
  Json file = word_tokenizer();
  file["model"]["unk_token"] = "[UNK]";
  const Tokenizer tokenizer = test::load_tokenizer(file);
  EXPECT_EQ(tokenizer.encode("ab", false), Ids{1});
  EXPECT_THROW(tokenizer.encode("b", false), Error);
}

// Files from before 2022 do not name the type.
TEST(WordLevel, IsKnownByItsFields) {
  Json file = word_tokenizer();
  file["model"].erase("type");
  EXPECT_EQ(test::load_tokenizer(file).encode("ab c", false), (Ids{1, 0}));
  file["model"]["continuing_subword_prefix"] = "##";  // of a WordPiece
  file["model"]["max_input_chars_per_word"] = 100;
  file["model"]["vocab"] = {{"<unk>", 0}, {"a", 1}, {"##b", 2}};
  EXPECT_EQ(test::load_tokenizer(file).encode("ab c", false), (Ids{1, 2, 0}));
}

}  // namespace
}  // namespace sluice
