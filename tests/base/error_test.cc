#include "src/base/error.h"

#include <gtest/gtest.h>

#include <string>

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
