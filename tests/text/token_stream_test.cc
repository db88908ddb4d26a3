// A text that comes bit by bit has the ids of the whole.
#include "src/text/token_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

using test::added_token;
using test::load_tokenizer;
using test::Random;
using test::small_tokenizer;
using Ids = std::vector<int32_t>;

Json split(const char* pattern, const char* behavior = "Isolated", bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

Json sequence(const char* key, Json members) {
  return {{"type", "Sequence"}, {key, std::move(members)}};
}

Json byte_level(bool regex, bool prefix = false) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", regex}};
}

// A tokenizer like SentencePiece's: the whole text is one word.
Json one_word(bool byte_fallback, bool fuse_unknown) {
  Json file = small_tokenizer();
  file["pre_tokenizer"] = nullptr;
  file["normalizer"] =
      sequence("normalizers",
               {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}});
  Json vocab = {{"<unk>", 0}};
  if (byte_fallback)
    for (int b = 0; b < 256; ++b) vocab[fmt::format("<0x{:02X}>", b)] = vocab.size();
  for (const char* c : {"\u2581", "a", "b", "c", "d", "\u00E9"}) vocab[c] = vocab.size();
  Json merges = Json::array();
  for (auto [left, right] : {std::pair{"\u2581", "a"},
                             {"b", "c"},
                             {"a", "b"},
                             {"bc", "a"},
                             {"\u2581", "\u2581"},
                             {"a", "a"},
                             {"aa", "aa"}}) {
    vocab[std::string(left) + right] = vocab.size();
    merges.push_back({left, right});
  }
  file["model"] = {{"type", "BPE"},
                   {"vocab", vocab},
                   {"merges", merges},
                   {"unk_token", "<unk>"},
                   {"byte_fallback", byte_fallback},
                   {"fuse_unk", fuse_unknown}};
  file["decoder"] = nullptr;
  return file;
}

// Tokens of every kind, some of which begin as others do, and white space.
Json tokens_of_all_kinds() {
  Json tokens = Json::array();
  auto add = [&](const char* content, std::initializer_list<const char*> flags) {
    Json token = added_token(content, 260 + static_cast<int>(tokens.size()));
    for (const char* flag : flags) token[flag] = true;
    tokens.push_back(std::move(token));
  };
  add("<s>", {"special"});
  add("<s><s>a", {});
  add("<l>", {"lstrip"});
  add("<r>", {"rstrip"});
  add("<b>", {"lstrip", "rstrip", "normalized"});
  add("word", {"single_word"});
  add("hell", {"normalized", "single_word"});
  add("<n> <n>", {"normalized"});
  add("  ", {"lstrip"});
  return tokens;
}

struct StreamCase {
  const char* name;
  Json file;
};

std::vector<StreamCase> cases() {
  std::vector<StreamCase> all;
  auto add = [&](const char* name, const char* key, Json value) {
    Json file = small_tokenizer();
    file["added_tokens"] = tokens_of_all_kinds();
    file[key] = std::move(value);
    all.push_back({name, std::move(file)});
  };
  add("GPT-2", "version", "1.0");
  add("no pre-tokenizer", "pre_tokenizer", byte_level(false));
  add("prefix space", "pre_tokenizer", byte_level(false, true));
  add("prefix space of words", "pre_tokenizer",
      sequence("pretokenizers", {{{"type", "WhitespaceSplit"}}, byte_level(true, true)}));
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip"})
    add(form, "normalizer", {{"type", form}});
  add("right strip", "normalizer", {{"type", "Strip"}, {"strip_left", false}});
  add("replace", "normalizer",
      {{"type", "Replace"}, {"pattern", {{"Regex", "(?<=a)b|h+e|\\s+$"}}}, {"content", "<l>"}});
  add("all of it", "normalizer",
      sequence("normalizers", {{{"type", "NFC"}},
                               {{"type", "Prepend"}, {"prepend", "a"}},
                               {{"type", "Lowercase"}},
                               {{"type", "Strip"}}}));
  for (const char* behavior :
       {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    for (bool invert : {false, true}) {
      add(behavior, "pre_tokenizer",
          sequence("pretokenizers", {split("[l ]|(?=w)", behavior, invert), byte_level(true)}));
    }
  }
  add("assertions", "pre_tokenizer",
      sequence("pretokenizers", {split("(?<=he)l|\\bwo|^.|.$|\\Ah|(?<!(?<=a)b)c(?!\\d+)|x*"),
                                 split("\\d{1,3}"), byte_level(false)}));
  add("all that follows", "pre_tokenizer",
      sequence("pretokenizers", {split("a(?=.*z)"), byte_level(false)}));
  add("digits and marks", "pre_tokenizer",
      sequence("pretokenizers", {{{"type", "Digits"}, {"individual_digits", false}},
                                 {{"type", "Punctuation"}},
                                 {{"type", "Whitespace"}},
                                 byte_level(true)}));
  Json whole = small_tokenizer();
  whole["model"]["ignore_merges"] = true;
  whole["model"]["vocab"]["hello"] = 260;
  all.push_back({"ignore_merges", std::move(whole)});
  all.push_back({"one word", one_word(false, false)});
  all.push_back({"one word, fused", one_word(false, true)});
  all.push_back({"one word, bytes", one_word(true, true)});
  return all;
}

// Words, tokens and parts of them, white space, characters that compose, bytes that are no text.
std::string random_text(Random& random, int64_t parts) {
  static const std::vector<std::string> kParts{
      "hello",   "hell",   "he",         "h",        "word",    "wor",  "a",
      "b",       "c",      "d",          "z",        "x",       " ",    " ",
      "  ",      "\n",     "\r\n",       "\t",       "\u2003",  "<s>",  "<s><s>",
      "<s",      "<l>",    "<r>",        "<b>",      "<n> <n>", "<n> ", "<",
      "1",       "2024",   ".",          "'",        "'ll",     "!?",   "\u00E9",
      "e\u0301", "\u0301", "\u0323",     "\u1100",   "\u1161",  "A",    "\u0130",
      "\uFB01",  "\u4E2D", "\U0001F600", "\xF0\x9F", "\xC3",    "\xFF", "\u07FD\u0334",
      "\u2581"};
  std::string text;
  for (int64_t i = 0; i < parts; ++i) {
    const std::string& part =
        kParts[static_cast<size_t>(random.between(0, std::ssize(kParts) - 1))];
    int64_t times = random.between(0, 20) == 0 ? random.between(1, 40) : 1;
    for (int64_t t = 0; t < times; ++t) text += part;
  }
  return text;
}

Ids in_parts(const Tokenizer& tokenizer, std::string_view text, Random& random, int64_t most) {
  Ids ids;
  TokenStream stream(tokenizer, true);
  while (!text.empty()) {
    auto size = static_cast<size_t>(random.between(most == 1 ? 1 : 0, most));
    stream.add(text.substr(0, size), ids);
    text.remove_prefix(std::min(size, text.size()));
  }
  stream.finish({}, ids);
  return ids;
}

TEST(TokenStream, HasTheIdsOfTheWholeText) {
  Random random("TokenStream.HasTheIdsOfTheWholeText");
  for (const StreamCase& c : cases()) {
    Tokenizer tokenizer = load_tokenizer(c.file);
    for (int round = 0; round < 60; ++round) {
      std::string text = random_text(random, random.between(0, 40));
      Ids whole = tokenizer.encode(text, true);
      for (int64_t most : {1, 3, 17, 200})
        ASSERT_EQ(in_parts(tokenizer, text, random, most), whole) << c.name << ": " << text;
    }
  }
}

TEST(TokenStream, OfRealTokenizers) {
  Random random("TokenStream.OfRealTokenizers");
  for (const char* family : {"gpt2_bpe", "llama3_bpe", "qwen2_bpe", "llama2_spm", "unigram",
                             "unigram_spm", "wordpiece"}) {
    Tokenizer tokenizer = Tokenizer::load(test::source_dir() / "tests/data/text" / family);
    for (int round = 0; round < 60; ++round) {
      std::string text = random_text(random, random.between(0, 60));
      Ids whole = tokenizer.encode(text, true);
      for (int64_t most : {1, 5, 50})
        ASSERT_EQ(in_parts(tokenizer, text, random, most), whole) << family << ": " << text;
    }
  }
}

// A stream's memory does not grow with the text, but for a stretch that cannot be cut.
TEST(TokenStream, AsksForRoomForLongStretchesOnly) {
  Tokenizer tokenizer = load_tokenizer(small_tokenizer());
  uint64_t asked = 0;
  Ids ids;
  TokenStream stream(tokenizer, false, [&](uint64_t bytes) { asked = bytes; });
  for (int i = 0; i < 2000; ++i) stream.add("hello hello hello hello hello hell", ids);
  EXPECT_EQ(asked, 0u);
  for (int i = 0; i < 2000; ++i) stream.add("hellohellohellohellohellohellohell", ids);
  EXPECT_GE(asked, 2000 * 34 * 8u);
  EXPECT_LT(asked, 64 * MiB);
}

TEST(TokenStream, RefusesAWordWithoutEnd) {
  Tokenizer tokenizer = load_tokenizer(small_tokenizer());
  Ids ids;
  TokenStream stream(tokenizer, false);
  std::string word(size_t{MiB}, 'x');
  EXPECT_THROW(for (int i = 0; i < 20; ++i) stream.add(word, ids), Error);
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace sluice
