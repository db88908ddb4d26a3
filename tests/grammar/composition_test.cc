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
  EXPECT_NE(
      refusal(SourceKind::composition, R"({"schema": {"not": {"oneOf": 1}}, "of": "the tool"})")
          .find("test: the tool: the schema at /not: oneOf"),
      std::string::npos);
  const char* loose = R"({"schema": {"not": {}}, "of": "the tool", "or": {"schema":
    {"type": "array"}}})";
  EXPECT_TRUE(composed(loose, R"([["any"], {"array": 1}])"));
  EXPECT_FALSE(composed(loose, "1"));
}

TEST(Composition, SchemasReferToTheirRoot) {
  const char* source = R"({"root": {"$defs": {"n": {"type": "integer"}}, "properties": {"x":
    {"$ref": "#/$defs/n"}}}, "part": {"sequence": [{"schema": {"$ref": "#/$defs/n"}}, {"text": " "},
    {"schema": {"$ref": "#/properties/x"}}]}})";
  EXPECT_TRUE(composed(source, "1 2"));
  EXPECT_FALSE(composed(source, "1 a"));
  EXPECT_NE(refusal(SourceKind::composition,
                    R"({"root": {}, "part": {"schema": {"$ref": "#/$defs/n"}}})"),
            "");
}

TEST(Composition, WhatIsRepeatedHasSomethingBetween) {
  const char* source = R"({"repeat": {"choice": [{"text": "a"}, {"text": "bb"}]}, "low": 2,
    "high": 3, "between": {"text": ", "}})";
  for (const char* good : {"a, a", "bb, a, bb"}) EXPECT_TRUE(composed(source, good)) << good;
  for (const char* bad : {"a", "a, ", "aa", "a, a, a, a"})
    EXPECT_FALSE(composed(source, bad)) << bad;
}

// Each of these alone takes all the steps that schemas may take.
TEST(Composition, ManySchemasTakeNoMoreThanOne) {
  std::string parts;
  for (int i = 0; i < 400; ++i) {
    parts += std::string(i > 0 ? "," : "") + R"({"schema": {"$ref": "#/$defs/0"},
      "or": {"text": "x"}})";
  }
  std::string defs = R"("30": {"type": "integer"})";
  for (int i = 0; i < 30; ++i) {
    const std::string next =
        R"({"$ref": "#/$defs/)" + std::to_string(i + 1) + R"(", "title": "t"})";
    defs += ", \"" + std::to_string(i) + R"(": {"allOf": [)" + next + ", " + next + "]}";
  }
  const std::string source =
      R"({"root": {"$defs": {)" + defs + R"(}}, "part": {"sequence": [)" + parts + "]}}";
  EXPECT_TRUE(composed(source, std::string(400, 'x')));
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
