#include "src/grammar/json_schema.h"

#include <gtest/gtest.h>

#include "tests/grammar/matching.h"

namespace sluice::grammar {
namespace {

bool valid(std::string_view schema, std::string_view text) {
  return matches(SourceKind::json_schema, schema, text);
}

std::string refused(std::string_view schema) { return refusal(SourceKind::json_schema, schema); }

TEST(JsonSchema, MembersComeInTheirOrder) {
  constexpr std::string_view kSchema = R"({"type":"object","properties":{"z":{"type":"integer"},
      "a":{"type":"string"},"m":{"type":"null"}},"required":["z"],"additionalProperties":false})";
  for (const char* text : {R"({"z":1})", R"({"z": 1, "a": "x"})", R"({"z":1,"m":null})",
                           "{\n  \"z\": 1,\n  \"a\": \"\",\n  \"m\": null\n}"})
    EXPECT_TRUE(valid(kSchema, text)) << text;
  for (const char* text : {"{}", R"({"a":"x","z":1})", R"({"z":1,})", R"({"z":1,"b":2})",
                           R"({"z":1"a":""})", R"({"z":"1"})", R"( {"z":1})", R"({"z":1} )"})
    EXPECT_FALSE(valid(kSchema, text)) << text;
}

TEST(JsonSchema, OtherMembersAreNotDeclaredOnes) {
  constexpr std::string_view kSchema = R"({"type":"object","properties":{"ab":{"type":"integer"},
      "abc":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})";
  for (const char* text : {"{}", R"({"ab":1,"abd":true})", R"({"a":true})", R"({"":false})",
                           R"({"abc":1,"abcd":true,"é":false})"})
    EXPECT_TRUE(valid(kSchema, text)) << text;
  for (const char* text : {R"({"ab":true})", R"({"abc":true})", R"({"x":1})", "{\"\\u0061b\":true}",
                           R"({"ab":1,"ab":true})"})
    EXPECT_FALSE(valid(kSchema, text)) << text;
}

TEST(JsonSchema, IntegersWithinBounds) {
  struct Case {
    int64_t low, high;
  };
  for (auto [low, high] : {Case{0, 9},
                           {-5, 5},
                           {17, 1234},
                           {-120, -7},
                           {99, 101},
                           {0, 0},
                           {-1000, 1000},
                           {5, 5},
                           {190, 2010}}) {
    const auto grammar =
        compile({SourceKind::json_schema,
                 fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", low, high)},
                "test");
    const auto real = compile(
        {SourceKind::json_schema,
         fmt::format(R"({{"type":"number","minimum":{},"exclusiveMaximum":{}}})", low, high + 1)},
        "test");
    for (int64_t i = low - 200; i <= high + 200; ++i) {
      const bool inside = i >= low && i <= high;
      ASSERT_EQ(matches(*grammar, std::to_string(i)), inside) << i << " of " << low << high;
      ASSERT_EQ(matches(*real, std::to_string(i)), inside) << i << " of " << low << high;
      const double half = static_cast<double>(i) + 0.5;
      ASSERT_EQ(matches(*real, fmt::format("{}", half)),
                half >= static_cast<double>(low) && half < static_cast<double>(high) + 1)
          << half;
    }
    EXPECT_FALSE(matches(*grammar, "-0"));
    EXPECT_FALSE(matches(*grammar, "007"));
  }
}

TEST(JsonSchema, BoundsOnOneSide) {
  EXPECT_TRUE(valid(R"({"type":"integer","minimum":250})", "1000000"));
  EXPECT_FALSE(valid(R"({"type":"integer","minimum":250})", "249"));
  EXPECT_TRUE(valid(R"({"type":"integer","exclusiveMaximum":-3})", "-4"));
  EXPECT_FALSE(valid(R"({"type":"integer","exclusiveMaximum":-3})", "-3"));
  EXPECT_TRUE(
      valid(R"({"minimum":-9223372036854775808,"type":"integer"})", "-9223372036854775808"));
  EXPECT_FALSE(
      valid(R"({"minimum":-9223372036854775808,"type":"integer"})", "-9223372036854775809"));
  EXPECT_TRUE(valid(R"({"type":"number","exclusiveMinimum":0})", "0.001"));
  EXPECT_FALSE(valid(R"({"type":"number","exclusiveMinimum":0})", "0.000"));
  EXPECT_TRUE(valid(R"({"type":"number","minimum":0,"maximum":1})", "1.00"));
  EXPECT_FALSE(valid(R"({"type":"number","minimum":0,"maximum":1})", "1.01"));
}

TEST(JsonSchema, StringsCountCharactersAndEscape) {
  constexpr std::string_view kThree = R"({"type":"string","minLength":2,"maxLength":3})";
  for (const char* text :
       {R"("ab")", R"("日本語")", R"("\n\"")", R"("\u00e9x")", R"("\ud83d\ude00a")"})
    EXPECT_TRUE(valid(kThree, text)) << text;
  for (const char* text : {R"("a")", R"("abcd")", R"("\ud83d\ude00")", "\"a\nb\"", R"("\ud83dab")",
                           R"("\udc00ab")", R"("\x")"})
    EXPECT_FALSE(valid(kThree, text)) << text;
  constexpr std::string_view kPattern = R"({"type":"string","pattern":"^a\\s\"\\\\$"})";
  EXPECT_TRUE(valid(kPattern, R"("a \"\\")"));
  EXPECT_TRUE(valid(kPattern, R"("a\n\"\\")"));
  EXPECT_FALSE(valid(kPattern, "\"a\n\\\"\\\\\""));
}

TEST(JsonSchema, Formats) {
  auto has = [](const char* format, const char* text) {
    return valid(fmt::format(R"({{"type":"string","format":"{}"}})", format),
                 fmt::format("\"{}\"", text));
  };
  EXPECT_TRUE(has("date-time", "2024-02-28T23:59:59.123Z"));
  EXPECT_TRUE(has("date-time", "2024-12-31T00:00:00+05:30"));
  EXPECT_FALSE(has("date-time", "2024-02-30T00:00:00Z"));
  EXPECT_FALSE(has("date", "2024-04-31"));
  EXPECT_FALSE(has("time", "24:00:00Z"));
  EXPECT_TRUE(has("email", "first.last+tag@mail.example.com"));
  EXPECT_FALSE(has("email", "a..b@example.com"));
  EXPECT_TRUE(has("ipv4", "255.0.10.1"));
  EXPECT_FALSE(has("ipv4", "256.0.0.1"));
  EXPECT_TRUE(has("ipv6", "2001:db8:0:0:0:0:0:1"));
  EXPECT_TRUE(has("uuid", "123e4567-e89b-12d3-a456-426614174000"));
  EXPECT_TRUE(has("uri", "https://example.com:8080/a/b?c=d"));
  EXPECT_TRUE(has("hostname", "a-b.example"));
  EXPECT_TRUE(has("duration", "P1Y2M3D"));
}

TEST(JsonSchema, PartsTogether) {
  constexpr std::string_view kSchema = R"({"$defs":{"id":{"type":"integer","minimum":1},
      "base":{"type":"object","properties":{"id":{"$ref":"#/$defs/id"}},"required":["id"]}},
      "allOf":[{"$ref":"#/$defs/base"},{"properties":{"id":{"maximum":9},"tag":{"enum":["x","y"]}},
      "required":["tag"]}]})";
  EXPECT_TRUE(valid(kSchema, R"({"id":9,"tag":"x"})"));
  EXPECT_FALSE(valid(kSchema, R"({"id":0,"tag":"x"})"));
  EXPECT_FALSE(valid(kSchema, R"({"id":10,"tag":"x"})"));
  EXPECT_FALSE(valid(kSchema, R"({"id":1})"));
  constexpr std::string_view kBeside = R"({"type":"object","properties":{"a":{"type":"null"},
      "b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})";
  EXPECT_TRUE(valid(kBeside, R"({"b":null})"));
  EXPECT_TRUE(valid(kBeside, R"({"a":null})"));
  EXPECT_FALSE(valid(kBeside, "{}"));
}

TEST(JsonSchema, RecursiveTrees) {
  constexpr std::string_view kTree = R"({"type":"object","properties":{"value":{"type":"integer"},
      "children":{"type":"array","items":{"$ref":"#"},"maxItems":2}},"required":["value"]})";
  EXPECT_TRUE(valid(kTree, R"({"value":1,"children":[{"value":2},{"value":3,"children":[]}]})"));
  EXPECT_FALSE(valid(kTree, R"({"value":1,"children":[{"value":2},{"value":3},{"value":4}]})"));
  EXPECT_FALSE(valid(kTree, R"({"value":1,"children":[{}]})"));
}

TEST(JsonSchema, WhatIsNotSupportedIsRefusedByPathAndKeyword) {
  struct Case {
    const char* schema;
    const char* said;
  };
  for (auto [schema, said] :
       {Case{R"({"properties":{"a":{"not":{}}}})", "at /properties/a: not is not supported"},
        {R"({"items":{"patternProperties":{}}})", "at /items: patternProperties is not supported"},
        {R"({"type":"array","uniqueItems":true})", "uniqueItems is not supported"},
        {R"({"if":{}})", "if is not supported"},
        {R"({"type":"number","multipleOf":0.1})", "multipleOf"},
        {R"({"type":"number","minimum":0.5})", "minimum of a number"},
        {R"({"type":"integer","minimum":3,"maximum":2})", "no number lies between"},
        {R"({"type":"string","format":"iban"})", "format \"iban\" is not supported"},
        {R"s({"type":"string","pattern":"(?=a)"})s", "pattern: the regular expression, byte"},
        {R"({"type":"string","pattern":"a","minLength":2})", "together are not supported"},
        {R"({"$ref":"#/$defs/x"})", "names nothing"},
        {R"({"$ref":"http://example.com/x"})", "$ref must name a place"},
        {R"({"type":"text"})", "type must be"},
        {R"({"enum":3})", "enum must be a list"},
        {R"({"type":"integer","enum":["a"]})", "no value is valid"},
        {R"({"type":"object","required":["a"],"additionalProperties":false})", "is not one of the"},
        {R"({"type":"string","maxLength":-1})", "maxLength must be an integer"},
        {R"({"anyOf":[]})", "anyOf must be a list"},
        {R"({"properties":{"a":false},"required":["a"]})", "at /properties/a: false is valid"},
        {R"({"a~/b":1})", "a~/b is not supported"},
        {R"([])", "must be an object"},
        {R"({"type":"object"} x)", "not valid JSON"},
        {R"({"type":"null","type":"null"})", "twice"},
        {R"({"properties":{"a":{"$ref":"#/properties/a"}},"required":["a"]})", ""},
        {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "never ends"}}) {
    const std::string why = refused(schema);
    EXPECT_NE(why, "") << schema;
    EXPECT_NE(why.find(said), std::string::npos) << why;
  }
}

TEST(JsonSchema, AnnotationsSayNothing) {
  EXPECT_TRUE(valid(R"({"title":"T","description":"d","default":3,"examples":[1],"$comment":"c",
                        "type":"integer","x-order":1,"deprecated":true})",
                    "12"));
}

TEST(JsonSchema, HostileOnesEndSoon) {
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 900; ++i) many += fmt::format(R"("p{}":{{"type":"string"}},)", i);
  EXPECT_TRUE(valid(many + R"("z":{"type":"null"}}})", R"({"p0":"","p899":"x"})"));
  for (int i = 900; i < 30'000; ++i) many += fmt::format(R"("p{}":1,)", i);
  EXPECT_NE(refused(many + R"("z":1}})"), "");
  // Each of twenty levels is used twice.
  std::string twice = R"({"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i <= 40; ++i) {
    twice +=
        fmt::format(R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})", i,
                    i - 1, i - 1);
  }
  EXPECT_NE(refused(twice + R"(},"allOf":[{"$ref":"#/$defs/d40"}]})"), "");
  EXPECT_NE(refused(R"({"$ref":"#","type":"object"})"), "");
  EXPECT_TRUE(
      valid(R"({"type":"array","minItems":1,"maxItems":1000000000,"items":{"type":"null"}})",
            "[null, null]"));
  EXPECT_NE(refused(std::string(60'000, '[')), "");
}

TEST(AnyJson, ObjectsAsTheyAreWritten) {
  const auto object = compile({SourceKind::json_object, {}}, "test");
  for (const char* text :
       {"{}", "{ }", R"({"a": [1, -2.5e3, {"b": null}], "c": "\u00e9\ud83d\ude00"})",
        "{\n  \"a\": [\n    true,\n    false\n  ]\n}", R"({"a":{},"b":[],"c":-0.0})"})
    EXPECT_TRUE(matches(*object, text)) << text;
  for (const char* text : {"[]", "1", "{a:1}", R"({"a":01})", R"({"a":1e999})", R"({"a":.5})",
                           R"({"a":1,})", R"({"a":"\ud800"})", R"({"a":nul})", "{  }", "{\n\n}",
                           "\n{}", R"({"a" :1})", R"({"a":1 ,"b":2})"})
    EXPECT_FALSE(matches(*object, text)) << text;
  EXPECT_FALSE(matches(*object, "{\"a\":1" + std::string(30, ' ') + "}"));
  EXPECT_TRUE(state_after(*object, "{\"a\":\n" + std::string(21, ' ')).dead()) << "endless blanks";
}

}  // namespace
}  // namespace sluice::grammar
