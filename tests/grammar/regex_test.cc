#include "src/grammar/regex.h"

#include <gtest/gtest.h>

#include "src/text/utf8.h"
#include "tests/grammar/matching.h"

namespace sluice::grammar {
namespace {

bool regex_matches(std::string_view pattern, std::string_view text) {
  return matches(SourceKind::regex, pattern, text);
}

TEST(Regex, CharactersAreUnicode) {
  EXPECT_TRUE(regex_matches("[α-ω]{3}", "αβγ"));
  EXPECT_FALSE(regex_matches("[α-ω]{3}", "αβ"));
  EXPECT_TRUE(regex_matches(".", "😀"));
  EXPECT_FALSE(regex_matches(".", "\xF0\x9F\x98"));
  EXPECT_FALSE(regex_matches(".", "\n"));
  EXPECT_FALSE(regex_matches("[^a]", "\xED\xA0\x80")) << "a surrogate";
  EXPECT_TRUE(regex_matches("[^a]", "é"));
  EXPECT_TRUE(regex_matches("\\u00e9\\x41\\u{1F600}", "éA😀"));
}

TEST(Regex, EveryCodePointIsInASetOrItsComplement) {
  auto set = compile({SourceKind::regex, "[\\x40-\\x7f\\u0400-\\u2fff\\u{10000}-\\u{20000}]"}, "t");
  auto others =
      compile({SourceKind::regex, "[^\\x40-\\x7f\\u0400-\\u2fff\\u{10000}-\\u{20000}]"}, "t");
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(static_cast<char32_t>(c), text);
    const bool inside =
        (c >= 0x40 && c <= 0x7F) || (c >= 0x400 && c <= 0x2FFF) || (c >= 0x10000 && c <= 0x20000);
    ASSERT_EQ(matches(*set, text), inside) << c;
    ASSERT_EQ(matches(*others, text), !inside) << c;
  }
}

TEST(Regex, AnchorsStandAtTheEnds) {
  EXPECT_TRUE(regex_matches("^ab|c$", "ab"));
  EXPECT_TRUE(regex_matches("^ab|c$", "c"));
  EXPECT_FALSE(regex_matches("^ab|c$", "xc"));
  EXPECT_TRUE(regex_matches("\\$5\\^", "$5^"));
}

TEST(Regex, LooksAhead) {
  constexpr std::string_view kPassword = "^(?=.*[A-Z])(?=.*\\d)(?!.*secret)[A-Za-z\\d]{6,12}$";
  EXPECT_TRUE(regex_matches(kPassword, "abcD3f"));
  for (const char* text : {"abcd3f", "abcDef", "aB3", "secretD3", "abcD3f-"})
    EXPECT_FALSE(regex_matches(kPassword, text)) << text;
  EXPECT_TRUE(regex_matches("a(?:b(?!c)|x)c?d?", "abd"));
  EXPECT_FALSE(regex_matches("a(?:b(?!c)|x)c?d?", "abcd"));
  EXPECT_TRUE(regex_matches("a(?:b(?!c)|x)c?d?", "axcd"));
  constexpr std::string_view kDecimal = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$";  // pydantic's
  EXPECT_TRUE(regex_matches(kDecimal, "-12.50"));
  for (const char* text : {"-", ".", "", "1.2.3"})
    EXPECT_FALSE(regex_matches(kDecimal, text)) << text;
  EXPECT_FALSE(regex_matches("(?!ab$)[a-c]+", "ab"));
  EXPECT_TRUE(regex_matches("(?!ab$)[a-c]+", "abc"));
}

TEST(Regex, WhatIsNotSupportedIsRefusedWithItsPlace) {
  for (const char* pattern :
       {"(?=a)*", "a(?!^b)", "((?!a)b)+", "(?<=a)b", "\\bx", "(a)\\1",   "\\p{L}", "a^b", "a$b",
        "(^a)",   "(?i)a",   "a**",       "*a",      "(a",   "a)",       "[b-a]",  "[]",  "[a",
        "\\",     "a{3,2}",  "\\u12",     "\\ud800", "\\q",  "a{2}{3}+", "\xFF"}) {
    const std::string why = refusal(SourceKind::regex, pattern);
    EXPECT_NE(why.find("the regular expression"), std::string::npos) << pattern << ": " << why;
  }
  EXPECT_NE(refusal(SourceKind::regex, "abc(?<=d)").find("byte 5"), std::string::npos);
}

TEST(Regex, HostileOnesEndSoon) {
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += '(';
  EXPECT_NE(refusal(SourceKind::regex, nested), "");
  EXPECT_NE(refusal(SourceKind::regex, std::string(1 << 20, 'a')), "");
  EXPECT_EQ(refusal(SourceKind::regex, "((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000000000}"),
            "");
  EXPECT_TRUE(regex_matches("((((a*)*)*)*)*b", std::string(2000, 'a').append("b")));
  EXPECT_FALSE(regex_matches("(a|a)*(a|aa)+c", std::string(500, 'a')));
}

}  // namespace
}  // namespace sluice::grammar
