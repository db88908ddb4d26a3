#include "src/text/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  Pattern compiled = Pattern::parse(pattern, "tokenizer.json");
  std::vector<TextSpan> spans;
  PatternMatcher(compiled).find_all(text, spans);
  std::vector<std::string> found;
  found.reserve(spans.size());
  for (TextSpan span : spans) found.emplace_back(span.of(text));
  return found;
}

struct Case {
  const char* pattern;
  const char* text;
  std::vector<std::string> matches;
};

// The expected matches are Oniguruma's (6.9.10), where PCRE2's reading of the same pattern differs.
TEST(Pattern, IsReadAsOnigurumaReadsIt) {
  const std::vector<Case> cases = {
      // No possessive quantifier after an interval; {n}? is optional, not lazy.
      {R"(\d{1,3}+)", "1234567 8", {"1234567", "8"}},
      {R"((?:ab){2}+)", "ababababz", {"abababab"}},
      {R"(a{2}?b)", "b aab", {"b", "aab"}},
      {R"(a{1,3}?)", "aa", {"a", "a"}},
      {R"(a{,2})", "aaa", {"aa", "a"}},
      {R"(a++b|a?+)", "aab", {"aab"}},
      // Braces that are no quantifier are text.
      {R"(a{)", "xa{", {"a{"}},
      {R"(a{1)", "xa{1", {"a{1"}},
      {R"(a})", "xa}", {"a}"}},
      // White space: not U+180E, U+200B, U+FEFF, but U+0085.
      {R"(\s+)",
       "a\xC2\x85"
       "b\xE1\xA0\x8E"
       "c\xE2\x80\x8B"
       "d\xEF\xBB\xBF",
       {"\xC2\x85"}},
      {R"([^\S\n]+)", "a \n\t", {" ", "\t"}},
      {R"([\S]+)",
       "a b\xC2\x85"
       "c",
       {"a", "b", "c"}},
      // \h is a hexadecimal digit, \v a vertical tab.
      {R"(\h+)", "xfz 0A", {"f", "0A"}},
      {R"(\v)", "a\n\x0B", {"\x0B"}},
      // \w has marks and Latin-1 numbers; in brackets not the latter.
      {R"(\w+)", "a\xC2\xB2-e\xCC\x81", {"a\xC2\xB2", "e\xCC\x81"}},
      {R"([\w]+)", "a\xC2\xB2", {"a"}},
      {R"(\bc\w)", "abc cd", {"cd"}},
      {R"(\Bc)", "abc cd", {"c"}},
      {R"([\w-]+)", "a-b c", {"a-b", "c"}},
      // ^ and $ match at every line; (?m) is dot-all.
      {R"(^.$)", "a\nb", {"a", "b"}},
      {R"((?m:a.b))", "a\nb", {"a\nb"}},
      {R"(a\Z)", "a\n", {"a"}},
      // Brackets.
      {R"([]a]+)", "x]ax", {"]a"}},
      {R"([^]a]+)", "x]ax", {"x", "x"}},
      {R"([--/]+)", "a-./b", {"-./"}},
      {R"([a-]+)", "xa-b", {"a-"}},
      {R"([[:punct:]]+)", "a+.b", {"+."}},
      {R"([\b\x{41}\u0042\x43]+)", "x\bABCx", {"\bABC"}},
      {R"(\p{^L}+)", "ab12", {"12"}},
      {R"([[:upper:]][[:lower:]]+|[[:^alpha:]])", "aBc1", {"Bc", "1"}},
      {R"([\W_]+)", "a_-b", {"_-"}},
      {R"([a-c[x-z]]+)", "abxd", {"abx"}},
      {R"([^a[bc]])", "abcd", {"d"}},
      {R"([\p{L}&&[^a-z]]+|[\w&&\d])", "aBC1", {"BC", "1"}},
      {R"([^\p{L}&&[^a-z]]+)", "aBC1", {"a", "1"}},
      {R"((?<name>a|b)+)", "xab", {"ab"}},
      {R"(\R|\X)", "\r\ne\xCC\x81", {"\r\n", "e\xCC\x81"}},
      {R"(\p{Upper}|\p{Punct}|\p{Emoji}+)", "aB+.\xF0\x9F\x98\x80", {"B", ".", "\xF0\x9F\x98\x80"}},
      {R"(\P{Letter}+)", "ab12", {"12"}},
      {R"([^\P{Lu}]+)", "abCD", {"CD"}},
      {R"(\p{Han}+|\p{Decimal_Number})",
       "a\xE4\xB8\xAD"
       "1",
       {"\xE4\xB8\xAD", "1"}},
      {R"(a(?#x)b)", "ab", {"ab"}},
      {R"((?i:'s|'LL)|K)", "'S 'll \xE2\x84\xAA", {"'S", "'ll"}},
      {R"((?i)k|world)", "K WORLD \xE2\x84\xAA", {"K", "WORLD", "\xE2\x84\xAA"}},
      {R"((?<=a)b|(?<!a)c|d(?=e)|d(?!f))", "abc dedf", {"b", "c", "d"}},
      {R"((?>a+)b|\-\/\_)", "aab -/_", {"aab", "-/_"}},
      // Characters newer than PCRE2's tables: Garay letters, CJK extension I, a Garay digit.
      {R"(\p{L}+)", "\xF0\x90\xB5\x90\xF0\xAE\xAF\xB0!", {"\xF0\x90\xB5\x90\xF0\xAE\xAF\xB0"}},
      {R"([^\s\p{L}\p{N}]+)", "!\xF0\x90\xB5\x80", {"!"}},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c.pattern, c.text), c.matches) << c.pattern;
}

TEST(Pattern, EmptyMatchesDoNotFollowAMatch) {
  Pattern pattern = Pattern::parse("a*", "tokenizer.json");
  std::vector<TextSpan> spans;
  PatternMatcher(pattern).find_all("baab\xC3\xA9", spans);
  EXPECT_EQ(spans, (std::vector<TextSpan>{{0, 0}, {1, 3}, {4, 4}, {6, 6}}));
}

TEST(Pattern, LiteralsAreTakenAsTheyAre) {
  Pattern pattern = Pattern::literal("a.*[\xC3\xA9", "tokenizer.json");
  std::vector<TextSpan> spans;
  PatternMatcher(pattern).find_all("abc a.*[\xC3\xA9", spans);
  EXPECT_EQ(spans, (std::vector<TextSpan>{{4, 10}}));
}

TEST(Pattern, RefusesWhatItCannotMatchExactly) {
  for (const char* pattern : {"(?<unclosed", "(",         ")",
                              "[a",          "a)",        "\\",
                              "+",           "a**",       "[z-a]",
                              "(?i",         "[a[bc]",    "[a-z&&]",
                              "a(?i)b|c",    "(?<n-a)",   R"((a)\1)",
                              R"(\k<n>)",    R"(\q)",     R"(\p{Foo})",
                              R"(\p{L)",     R"(\pL)",    R"(\x{110000})",
                              R"(\x{d800})", R"(\G)",     "(*ACCEPT)",
                              "(?R)",        "[[:foo:]]", R"([a-\d])",
                              "[[:alpha:",   "(?P<n>a)",  "(?(1)a)",
                              "(?C1)",       R"(a\K)",    "a{3,1}"}) {
    try {
      Pattern::parse(pattern, "tokenizer.json: pre_tokenizer");
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_THAT(e.what(), StartsWith("tokenizer.json: pre_tokenizer: pattern '")) << pattern;
    }
  }
}

TEST(Pattern, RefusesExcessInsteadOfHanging) {
  std::string nested = std::string(50000, '(') + "a" + std::string(50000, ')');
  EXPECT_THROW(Pattern::parse(nested, "tokenizer.json"), Error);
  EXPECT_THROW(Pattern::parse(std::string(1 << 20, 'a'), "tokenizer.json"), Error);
  for (const char* pattern : {"(?:a+)+$", "(?:a|aa)+$"}) {
    try {
      matches(pattern, std::string(200, 'a') + "!");
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_THAT(e.what(), HasSubstr("limit"));
    }
  }
}

TEST(Pattern, LongRunsNeedNoDeepStack) {
  std::string run(200000, 'a');
  EXPECT_EQ(matches(R"((?:\p{L}\p{M}*)+)", run), std::vector<std::string>{run});
}

}  // namespace
}  // namespace sluice
