#include "src/base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "src/base/error.h"

namespace sluice {
namespace {

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    return e.what();
  }
  return "no error";
}

TEST(Json, RefusesWithFileName) {
  for (std::string bad :
       {std::string(), std::string("{"), std::string("[1,]"), std::string("{} x"),
        std::string("\xff\xfe"), std::string("<html>"), std::string("{}\0x", 4)}) {
    EXPECT_NE(message_of([&] { parse_json(bad, "config.json"); }).find("config.json"),
              std::string::npos)
        << bad;
  }
  std::string deep(100'000, '[');
  EXPECT_NE(message_of([&] { parse_json(deep, "config.json"); }).find("nested too deeply"),
            std::string::npos);
}

TEST(Json, NestsAsDeepAsItMay) {
  const auto nested = [](int levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_EQ(parse_json(nested(65), "f"), Json::parse(nested(65)));
  EXPECT_NE(message_of([&] { parse_json(nested(66), "f"); }).find("more than 64"),
            std::string::npos);
  EXPECT_EQ(parse_json(R"({"a": {"b": [1, {"c": {}}], "d": []}, "e": [[], [{}]]})", "f").dump(),
            R"({"a":{"b":[1,{"c":{}}],"d":[]},"e":[[],[{}]]})");
}

// A list of objects takes time in proportion: its square would take a quarter of an hour here.
TEST(Json, TakesLongListsOfObjects) {
  std::string text = "[{}";
  for (int i = 1; i < 1'000'000; ++i) text += ",{}";
  EXPECT_EQ(parse_json(text + "]", "f").size(), 1'000'000u);
  const std::string repeated = text + R"(,{"a":1,"a":2}])";
  EXPECT_NE(message_of([&] { parse_ordered(repeated, "f"); }).find("twice"), std::string::npos);
}

TEST(Json, RepeatedKeysAreNamed) {
  auto refused = [](const std::string& text) {
    return message_of([&] { parse_ordered(text, "line"); });
  };
  EXPECT_EQ(refused(R"({"a": {"a": ": {", "b": [{"a": NaN}, {"a": "\":"}]}, "b": 1})"), "no error");
  EXPECT_EQ(refused(R"({"a": [{"b": NaN, "c": {}, "b": 1}], "b": 1})"),
            "line: the key \"b\" is there twice");
  std::optional<std::string> repeated;
  EXPECT_EQ(parse_ordered(R"({"b": 1, "a": 2, "b": 3})", "line", &repeated).at("b"), 1);
  EXPECT_EQ(repeated, "b");
}

TEST(Json, LargeObjectsAreReadInProportion) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += fmt::format(R"("{}":1,)", i);
  EXPECT_EQ(parse_ordered(text + R"("x":{}})", "f").size(), 300'001u);
}

TEST(Json, LargeIntegersKeepTheirDigits) {
  const std::string text =
      R"({"z":[123456789012345678901234567890,-18446744073709551616,{"\u00e4\"":[]}],"a":1.5,"b":{},"c":null})";
  const OrderedJson read = parse_ordered(text, "f");
  EXPECT_EQ(dump_ordered(read),
            R"({"z":[123456789012345678901234567890,-18446744073709551616,{"ä\"":[]}],)"
            R"("a":1.5,"b":{},"c":null})");
  EXPECT_EQ(round_integers(read).at("z").at(1), -18446744073709551616.0);
  const std::string held = R"([18446744073709551615,-9223372036854775808,1e30,"x",true])";
  EXPECT_EQ(parse_ordered(held, "f"), OrderedJson::parse(held));
  const OrderedJson large = parse_ordered(R"({"n": 100000000000000000000})", "f");
  EXPECT_EQ(OrderedFields(large, "f").number("n"), 1e20);
  EXPECT_NE(message_of([&] { OrderedFields(large, "f").integer("n", 0, 5); }), "no error");
  for (const char* none : {"", "{", "[1,]", "[1e999]"})
    EXPECT_NE(message_of([&] { parse_ordered(none, "f"); }), "no error") << none;
}

TEST(Json, FieldsNameTheKey) {
  Json j = parse_json(
      R"({"a": 1.5, "b": "x", "c": null, "d": 18446744073709551615, "e": -4, "t": true})", "f");
  JsonFields f(j, "f");
  for (const char* key : {"a", "b", "c", "d", "e", "missing"}) {
    EXPECT_NE(message_of([&] { f.integer(key, 0, 100); }).find(key), std::string::npos) << key;
  }
  EXPECT_EQ(f.integer("e", -10, 10), -4);
  EXPECT_EQ(f.integer_or("c", 0, 10, 7), 7);
  EXPECT_EQ(message_of([&] { f.integer_or("c", 1, 6, 8); }),
            "f: c is missing, and what is taken for it, 8, does not lie between 1 and 6");
  EXPECT_EQ(f.number("a"), 1.5);
  EXPECT_TRUE(f.boolean_or("t", false));
  EXPECT_EQ(f.string_or("missing", "z"), "z");
  EXPECT_NE(message_of([&] { JsonFields(parse_json("[]", "g"), "g"); }).find("object"),
            std::string::npos);
}

TEST(Json, TakesWhatPythonWrites) {
  Json j = parse_json(
      R"({"a": [0.0, Infinity, -Infinity, NaN], "b": "NaN \"Infinity\"", "c": NaN, "d": 1, "d": 2})",
      "f");
  JsonFields f(j, "f");
  EXPECT_EQ(f.string("b"), "NaN \"Infinity\"");
  EXPECT_EQ(parse_json(R"(["\u0000NaN"])", "f")[0], std::string("\0NaN", 4));  // a text
  EXPECT_EQ(f.integer("d", 0, 9), 2);  // the last value of a key counts
  EXPECT_EQ(j["a"].size(), 4u);
  EXPECT_EQ(j["a"][1], std::numeric_limits<double>::infinity());
  EXPECT_EQ(j["a"][2], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(j["a"][3].get<double>()));
  for (const Json& number : {j["a"][1], j["a"][2], j["a"][3], j["c"]})
    EXPECT_TRUE(number.is_number_float());
  EXPECT_NE(message_of([&] { f.number_or("c", 1); }).find("c must be a finite number"),
            std::string::npos);
  EXPECT_NE(message_of([&] { f.integer_or("c", 0, 9, 1); }).find("integer"), std::string::npos);
  EXPECT_EQ(json_of_python(R"({"NaN": "\\", "x": "\"NaN"})"), std::nullopt);
  for (const char* bad :
       {"NaNs", "Infinit", "- Infinity", "{\"a\": nan}", "{NaN: 1}", "+Infinity"}) {
    EXPECT_NE(message_of([&] { parse_json(bad, "f"); }).find("not valid JSON"), std::string::npos)
        << bad;
  }
}

TEST(Json, NullIsNotAbsent) {
  Json j = parse_json(R"({"a": null, "b": 1})", "f");
  JsonFields f(j, "f");
  EXPECT_NO_THROW(f.refuse_null({"b", "missing"}));
  EXPECT_NE(message_of([&] { f.refuse_null({"b", "a"}); }).find("a is null"), std::string::npos);
  EXPECT_TRUE(f.is_null("a"));
  EXPECT_FALSE(f.is_null("missing"));
}

}  // namespace
}  // namespace sluice
