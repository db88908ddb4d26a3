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

TEST(OrderedJson, LargeIntegersKeepTheirDigits) {
  const std::string text =
      R"({"z":[123456789012345678901234567890,-18446744073709551616,{"\u00e4\"":[]}],"a":1.5,"b":{},"c":null})";
  const Ordered read = parse_ordered(text);
  EXPECT_FALSE(read.at("z").at(0).is_string());
  EXPECT_EQ(dump_ordered(read),
            R"({"z":[123456789012345678901234567890,-18446744073709551616,{"ä\"":[]}],)"
            R"("a":1.5,"b":{},"c":null})");
  EXPECT_EQ(dump_ordered(read.at("z").at(1)), "-18446744073709551616");
  const std::string held = R"([18446744073709551615,-9223372036854775808,1e30,"x",true])";
  EXPECT_EQ(dump_ordered(parse_ordered(held)), Ordered::parse(held).dump());
  for (const char* none : {"", "{", "[1,]", "NaN", "[1e999]"})
    EXPECT_TRUE(parse_ordered(none).is_discarded()) << none;
}

}  // namespace
}  // namespace sluice
