// Members of objects, found in their text.
#include "src/serve/ordered_json.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(MemberText, IsThatOfTheMember) {
  const std::string text =
      R"( {"a": "\"}:," , "b":{"c":[1,{"d":2}], "e": "]"},"\u0066": [true], "g" : -1.5 })";
  EXPECT_EQ(member_text(text, "a"), R"( "\"}:," )");
  EXPECT_EQ(member_text(text, "b"), R"({"c":[1,{"d":2}], "e": "]"})");
  EXPECT_EQ(member_text(text, "f"), " [true]");
  EXPECT_EQ(member_text(text, "g"), " -1.5 ");
  for (const char* none : {"c", "d", "e", "", "u0066"}) EXPECT_EQ(member_text(text, none), "");
  EXPECT_EQ(member_text("{}", "a"), "");
}

}  // namespace
}  // namespace sluice
