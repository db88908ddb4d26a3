#include "src/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"

namespace sluice {
namespace {

using Strings = std::vector<std::string>;

Strings split(const Json& config, std::string text) {
  PreTokenizer pre_tokenizer = PreTokenizer::load(config);
  Pieces pieces = PreTokenizerStream(pre_tokenizer).add(text, true);
  Strings found;
  size_t begin = 0;
  for (uint32_t end : pieces.ends) {
    found.push_back(pieces.text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, pieces.text.size());
  return found;
}

Json split_config(const char* pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

TEST(PreTokenizer, SplitBehaviors) {
  auto with = [](const char* behavior) { return split(split_config("-", behavior), "a--b-c-"); };
  EXPECT_EQ(with("Removed"), (Strings{"a", "b", "c"}));
  EXPECT_EQ(with("Isolated"), (Strings{"a", "-", "-", "b", "-", "c", "-"}));
  EXPECT_EQ(with("MergedWithPrevious"), (Strings{"a-", "-", "b-", "c-"}));
  EXPECT_EQ(with("MergedWithNext"), (Strings{"a", "-", "-b", "-c", "-"}));
  EXPECT_EQ(with("Contiguous"), (Strings{"a", "--", "b", "-", "c", "-"}));
}

TEST(PreTokenizer, InvertedSplitBehaviors) {
  auto with = [](const char* behavior) {
    return split(split_config("-", behavior, true), "--ab-c");
  };
  EXPECT_EQ(with("Removed"), (Strings{"-", "-", "-"}));
  EXPECT_EQ(with("Isolated"), (Strings{"-", "-", "ab", "-", "c"}));
  EXPECT_EQ(with("MergedWithPrevious"), (Strings{"-", "-ab", "-c"}));
  EXPECT_EQ(with("MergedWithNext"), (Strings{"-", "-", "ab-", "c"}));
  EXPECT_EQ(with("Contiguous"), (Strings{"--", "ab", "-", "c"}));
}

TEST(PreTokenizer, SplitByString) {
  Json config = split_config("", "Isolated");
  config["pattern"] = {{"String", "--"}};
  EXPECT_EQ(split(config, "a---b"), (Strings{"a", "--", "-b"}));
}

TEST(PreTokenizer, ByteLevel) {
  Json config = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(split(config, "I'm  here\n"), (Strings{"I", "'m", "\u0120", "\u0120here", "\u010A"}));
  config["use_regex"] = false;
  EXPECT_EQ(split(config, "a\u00E9 \xF0\x9F\x98\x80"),
            (Strings{"a\u00C3\u00A9\u0120\u00F0\u0141\u013A\u0122"}));
  config["add_prefix_space"] = true;
  EXPECT_EQ(split(config, "a"), Strings{"\u0120"
                                        "a"});
  EXPECT_EQ(split(config, " a"), Strings{"\u0120"
                                         "a"});
  EXPECT_EQ(split(config, ""), Strings{});
}

TEST(PreTokenizer, Scripts) {
  const Json config = {{"type", "UnicodeScripts"}};
  // Spaces go with what is before them; Kana and Kanji are one script.
  EXPECT_EQ(split(config, "  ab, \u0447\u0442\u043E 1\u65E5\u3072\u30AB\u30FC x\u3000 "),
            (Strings{"ab", ", ", "\u0447\u0442\u043E ", "1", "\u65E5\u3072\u30AB\u30FC ", "x",
                     "\u3000 "}));
  EXPECT_EQ(split(config, "   "), Strings{});
}

TEST(PreTokenizer, FixedLength) {
  EXPECT_EQ(split({{"type", "FixedLength"}, {"length", 2}}, "a\u0301b\n\u65E5x"),
            (Strings{"a\u0301", "b\n", "\u65E5x"}));
  EXPECT_EQ(split({{"type", "FixedLength"}}, "abcdefg"), (Strings{"abcde", "fg"}));
}

TEST(PreTokenizer, FixedPatterns) {
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a12b"),
            (Strings{"a", "1", "2", "b"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", false}}, "a12b"),
            (Strings{"a", "12", "b"}));
  EXPECT_EQ(split({{"type", "Punctuation"}}, "a,$b"), (Strings{"a", ",", "$", "b"}));
  EXPECT_EQ(split({{"type", "Whitespace"}}, "Hey, you \n!?"), (Strings{"Hey", ",", "you", "!?"}));
  EXPECT_EQ(split({{"type", "WhitespaceSplit"}}, "Hey, \u3000you"), (Strings{"Hey,", "you"}));
}

TEST(PreTokenizer, SequenceAppliesOneAfterTheOther) {
  Json config = {{"type", "Sequence"},
                 {"pretokenizers",
                  {split_config(" ", "Removed"),
                   {{"type", "Digits"}, {"individual_digits", true}},
                   {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  EXPECT_EQ(split(config, "ab 12"), (Strings{"\u0120"
                                             "ab",
                                             "\u0120"
                                             "1",
                                             "\u0120"
                                             "2"}));
  EXPECT_EQ(split(nullptr, "a b"), Strings{"a b"});
}

// Each doubles what is no letter of the byte alphabet, so that forty would need a terabyte.
TEST(PreTokenizer, RefusesToGrowWithoutBound) {
  Json steps = Json::array();
  for (int i = 0; i < 40; ++i) steps.push_back({{"type", "ByteLevel"}, {"use_regex", false}});
  try {
    split({{"type", "Sequence"}, {"pretokenizers", steps}}, "\u00e9");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    EXPECT_TRUE(std::string(e.what()).starts_with("tokenizer.json: pre_tokenizer: makes "))
        << e.what();
  }
  Json few = {steps[0], steps[1]};
  EXPECT_EQ(split({{"type", "Sequence"}, {"pretokenizers", few}}, "a").size(), 1u);
}

}  // namespace
}  // namespace sluice
