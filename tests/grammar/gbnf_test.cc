#include "src/grammar/gbnf.h"

#include <gtest/gtest.h>

#include "tests/grammar/matching.h"

namespace sluice::grammar {
namespace {

bool gbnf_matches(std::string_view grammar, std::string_view text) {
  return matches(SourceKind::gbnf, grammar, text);
}

constexpr std::string_view kArithmetic = R"g(
# Sums of products, as in llama.cpp's examples.
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num |
          "(" ws expr ")" ws   # in the next line
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)g";

TEST(Gbnf, ReadsRulesThatCallOneAnother) {
  EXPECT_TRUE(gbnf_matches(kArithmetic, "a +(b1*2) = c\n"));
  EXPECT_TRUE(gbnf_matches(kArithmetic, "1=2\n3=4\n"));
  EXPECT_FALSE(gbnf_matches(kArithmetic, "a + = c\n"));
  EXPECT_FALSE(gbnf_matches(kArithmetic, "(a=b\n"));
}

TEST(Gbnf, ReadsAllThatTheNotationHas) {
  EXPECT_TRUE(gbnf_matches(R"(root ::= "\x41\u00e9\U0001F600\n\"\\" .)", "Aé😀\n\"\\日"));
  EXPECT_FALSE(gbnf_matches("root ::= [^\\]a-c]{2,3}", "]]"));
  EXPECT_TRUE(gbnf_matches("root ::= [^\\]a-c]{2,3} \"x\"?", "dédx"));
  EXPECT_TRUE(gbnf_matches("root ::= [d-z\\]]{2,3}", "]]z"));
  EXPECT_TRUE(gbnf_matches("root ::= \"a\"{3} b *\nb ::= \"b\"", "aaabb"));
  EXPECT_TRUE(gbnf_matches("root ::= \"a\"{2,} | (\n  \"b\"\n  \"c\"\n)", "bc"));
  EXPECT_TRUE(gbnf_matches("root ::= | \"a\" root", "aaa"));
}

TEST(Gbnf, WhatIsNoneIsRefusedWithItsPlace) {
  for (const char* grammar :
       {"", "root", "root ::= ", "a ::= \"x\"", "root ::= b", "root ::= \"x", "root ::= [a",
        "root ::= (\"a\"", "root ::= \"a\" )", "root ::= \"a\"\nroot ::= \"b\"", "root ::= \"\\q\"",
        "root ::= [b-a]", "root ::= \"a\"{3,2}", "root ::= \"a\"{", "root := \"a\"",
        "root ::= %"}) {
    const bool empty = std::string_view(grammar) == "root ::= ";
    EXPECT_EQ(refusal(SourceKind::gbnf, grammar).empty(), empty) << grammar;
  }
}

TEST(Gbnf, RecursionWithoutATextIsRefused) {
  for (const char* grammar :
       {"root ::= root \"a\" | \"b\"", "root ::= a\na ::= b \"x\" | \"x\"\nb ::= a | \"y\"",
        "root ::= a? root \"b\" | \"c\"\na ::= \"a\"", "root ::= (root \"x\"){2,5} | \"a\"",
        "root ::= root"}) {
    const std::string why = refusal(SourceKind::gbnf, grammar);
    EXPECT_TRUE(why.find("left recursion") != std::string::npos ||
                why.find("never ends") != std::string::npos)
        << grammar << why;
  }
  EXPECT_NE(refusal(SourceKind::gbnf, "root ::= \"a\" root").find("never ends"), std::string::npos);
  EXPECT_EQ(refusal(SourceKind::gbnf, "root ::= \"a\" root | \"\""), "");
}

TEST(Gbnf, ManyRulesInAnyOrderAreReadSoon) {
  std::string chain = "root ::= r0\n", back = "root ::= r19999\nr0 ::= \"a\"\n";
  for (int i = 0; i < 19'999; ++i) {
    chain += fmt::format("r{} ::= \"a\" r{}\n", i, i + 1);
    back += fmt::format("r{} ::= r{} \"b\"?\n", i + 1, i);
  }
  chain += "r19999 ::= \"z\"\n";
  EXPECT_TRUE(gbnf_matches(chain, std::string(19'999, 'a').append("z")));
  EXPECT_NE(refusal(SourceKind::gbnf, back), "") << "deeper than stacks are";
}

}  // namespace
}  // namespace sluice::grammar
