#include "src/base/error.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace sluice {
namespace {

TEST(Error, IsOneLineWhateverFilesPutIntoIt) {
  auto message = [](const std::string& name) {
    return std::string(Error(ErrorKind::refused, name + " is not known").what());
  };
  EXPECT_EQ(message("x"), "x is not known");
  EXPECT_EQ(message("\n\x1b[31m\t\x7f"), "??[31m?? is not known");
  EXPECT_EQ(message("\u00e9\u009b\u00a0\U0001f600"), "\u00e9??\u00a0\U0001f600 is not known");
}

TEST(Error, CannotTurnTheRestOfItsLineAround) {
  // Bidirectional and other format characters, separators of lines, tags.
  for (const char* unseen : {"\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\u2029", "\u200b",
                             "\ufeff", "\u00ad", "\U000e0041"}) {
    std::string replaced(std::string_view(unseen).size(), '?');
    EXPECT_EQ(one_line(std::string("a") + unseen + "b"), "a" + replaced + "b");
  }
  // Invalid UTF-8: a lone byte, a sequence that ends early, a long form of '/', a surrogate.
  EXPECT_EQ(one_line("a\xff\xe2\x82 \xc0\xaf \xed\xa0\x80 \xe2\x82"), "a??? ?? ??? ??");
  EXPECT_EQ(one_line("\u05e9\u20ac\U0001f600"), "\u05e9\u20ac\U0001f600");
  EXPECT_EQ(lines_for_terminal("a\n\tb\u202e"), "a\n?b???");
}

TEST(Error, IsNoLongerThanAPersonReads) {
  for (size_t size : {size_t{4000}, kMaxErrorBytes, kMaxErrorBytes + 1, size_t{100'000}}) {
    for (const char* letter : {"a", "\u00e9", "\u20ac"}) {
      std::string text = "begin ";
      while (text.size() < size - 4) text += letter;
      text += " end";
      std::string line = one_line(text);
      EXPECT_LE(line.size(), kMaxErrorBytes);
      if (text.size() <= kMaxErrorBytes) {
        EXPECT_EQ(line, text);
        continue;
      }
      EXPECT_GT(line.size(), kMaxErrorBytes - 8);
      EXPECT_TRUE(line.starts_with("begin ")) << line;
      EXPECT_TRUE(line.ends_with(" end")) << line;
      // Characters are whole beside the gap.
      size_t gap = line.find(" ... ");
      ASSERT_NE(gap, std::string::npos);
      std::string last = letter;
      EXPECT_EQ(line.substr(gap - last.size(), last.size()), last);
      EXPECT_EQ(line.substr(gap + 5, last.size()), last);
    }
  }
}

}  // namespace
}  // namespace sluice
