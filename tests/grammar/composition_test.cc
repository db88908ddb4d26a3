// Grammars put together from parts.
#include "src/grammar/composition.h"

#include <gtest/gtest.h>

#include "src/grammar/token_table.h"
#include "tests/grammar/matching.h"
#include "tests/support/random.h"

namespace sluice::grammar {
namespace {

bool composed(std::string_view source, std::string_view text) {
  return matches(SourceKind::composition, source, text);
}

TEST(Composition, PartsOneAfterTheOtherAndEither) {
  const char* source = R"({"sequence": [{"text": "a"}, {"space": 2},
    {"choice": [{"schema": {"type": "integer"}}, {"source": "regex", "text": "[xy]+"}]},
    {"repeat": {"text": "!"}, "low": 1, "high": 2}]})";
  for (const char* good : {"a1!", "a \nxyx!!", "a-12!"})
    EXPECT_TRUE(composed(source, good)) << good;
  for (const char* bad : {"a1", "a1!!!", "a   1!", "1!", "a1x!"})
    EXPECT_FALSE(composed(source, bad)) << bad;
  EXPECT_TRUE(composed(R"({"repeat": {"text": "a"}, "low": 0})", std::string(1000, 'a')));
}

TEST(Composition, ATextWithoutATag) {
  test::Random random("without");
  for (const std::string tag : {"</t>", "</aa>", "[T]", "!", "<ab"}) {
    const std::string free = R"({"without": ")" + tag + R"("})";
    const std::string closed = R"({"sequence": [)" + free + R"(, {"text": ")" + tag + R"("}]})";
    const std::string letters = tag + "x\xC3";
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (int64_t n = random.between(0, 12); n > 0; --n)
        text += letters[static_cast<size_t>(random.between(0, std::ssize(letters) - 1))];
      const bool holds = text.find(tag) != text.npos;
      EXPECT_EQ(composed(free, text), !holds) << tag << " in " << text;
      const bool closes = text.find(tag) == text.size() - tag.size() && text.size() >= tag.size();
      EXPECT_EQ(composed(closed, text), closes) << tag << " ends " << text;
    }
  }
}

TEST(Composition, SpecialTokensAreNamed) {
  const IsSpecial special = [](std::string_view token) { return token == "[T]"; };
  const char* source = R"({"sequence": [{"without": "[T]"}, {"token": "[T]"}, {"token": "[U]"}]})";
  const auto grammar = compile({SourceKind::composition, source}, "test", special);
  EXPECT_TRUE(matches(*grammar, "[T] is text" + special_text("[T]") + "[U]"));
  EXPECT_FALSE(matches(*grammar, "x[T][U]"));
  EXPECT_FALSE(matches(*grammar, "x" + special_text("[U]") + special_text("[T]") + "[U]"));
}

TEST(Composition, ASchemaThatIsNotSupported) {
  EXPECT_NE(refusal(SourceKind::composition, R"({"schema": {"not": {}}, "of": "the tool"})")
                .find("test: the tool: the schema: not"),
            std::string::npos);
  const char* loose = R"({"schema": {"not": {}}, "of": "the tool", "or_object": true})";
  EXPECT_TRUE(composed(loose, R"({"any": ["object"]})"));
  EXPECT_FALSE(composed(loose, "1"));
}

TEST(Composition, WhatIsNoneIsRefused) {
  for (const char* bad :
       {"", "1", "[]", "{}", R"({"text": 1})", R"({"sequence": []})", R"({"sequence": [1]})",
        R"({"repeat": {"text": "a"}})", R"({"repeat": {"text": "a"}, "low": -1})",
        R"({"source": "composition", "text": "{}"})", R"({"source": "regex"})",
        R"({"source": "regex", "text": "("})", R"({"without": ""})", R"({"without": "aba"})"})
    EXPECT_NE(refusal(SourceKind::composition, bad), "") << bad;
}

}  // namespace
}  // namespace sluice::grammar
