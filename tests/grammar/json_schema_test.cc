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
  for (const char* day : {"2024-02-29", "2000-02-29", "0004-02-29", "2023-02-28"})
    EXPECT_TRUE(has("date", day)) << day;
  for (const char* day : {"2023-02-29", "1900-02-29", "2024-02-30"})
    EXPECT_FALSE(has("date", day)) << day;
  EXPECT_TRUE(has("date-time", "2024-02-29T12:30:00Z"));
  EXPECT_TRUE(has("time", "23:59:60Z"));
  for (const char* duration : {"PT1H", "PT36H", "P1DT12H", "P4W", "PT0S", "P1Y2D"})
    EXPECT_TRUE(has("duration", duration)) << duration;
  for (const char* duration : {"P", "PT", "P1", "1D", "P1DT", "P1W2D"})
    EXPECT_FALSE(has("duration", duration)) << duration;
  for (const char* address : {"::", "::1", "2001:db8::1", "fe80::1:2", "::ffff:192.0.2.1",
                              "1::", "1:2:3:4:5:6:7::", "64:ff9b::1.2.3.4"})
    EXPECT_TRUE(has("ipv6", address)) << address;
  for (const char* address : {":", "1::2::3", "1:2:3:4:5:6:7", "12345::", "1:2:3:4:5:6:7:8:9"})
    EXPECT_FALSE(has("ipv6", address)) << address;
  for (const char* uri :
       {"mailto:a@b.example", "urn:isbn:0451450523", "http://[::1]:8080/x?y=z#f",
        "https://u:p@example.com/a%20b", "file:///etc/hosts", "tel:+1-816-555-1212"})
    EXPECT_TRUE(has("uri", uri)) << uri;
  for (const char* uri : {"/relative", "http://a b", "x", "http://[1]/", "a:%zz"})
    EXPECT_FALSE(has("uri", uri)) << uri;
}

// zod, pydantic and generators of OpenAPI write them so.
TEST(JsonSchema, FormatsBesideOtherRules) {
  constexpr std::string_view kDate =
      R"({"type":"string","format":"date","pattern":"^\\d{4}-\\d{2}-\\d{2}$"})";
  EXPECT_TRUE(valid(kDate, "\"2024-02-29\""));
  EXPECT_FALSE(valid(kDate, "\"2024-13-01\""));
  constexpr std::string_view kMail = R"s({"type":"string","format":"email","pattern":
      "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})s";
  EXPECT_TRUE(valid(kMail, "\"first.last+tag@mail.example.com\""));
  for (const char* text : {"\".a@b.com\"", "\"a..b@c.com\"", "\"a@b\"", "\"a b@c.com\""})
    EXPECT_FALSE(valid(kMail, text)) << text;
  constexpr std::string_view kDuration = R"s({"type":"string","format":"duration","pattern":
      "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})s";
  for (const char* text : {"\"P1W\"", "\"P1DT2H\"", "\"PT5S\""})
    EXPECT_TRUE(valid(kDuration, text)) << text;
  for (const char* text : {"\"P\"", "\"PT\"", "\"P1DT\""})
    EXPECT_FALSE(valid(kDuration, text)) << text;
  // A time without a zone is none of RFC 3339: the pattern counts.
  constexpr std::string_view kTime =
      R"s({"type":"string","format":"time","pattern":"^([01]\\d|2[0-3]):[0-5]\\d$"})s";
  EXPECT_TRUE(valid(kTime, "\"12:30\""));
  constexpr std::string_view kLink =
      R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})";
  EXPECT_TRUE(valid(kLink, "\"https://example.com/\""));
  constexpr std::string_view kShortMail = R"({"type":"string","format":"email","maxLength":10})";
  EXPECT_TRUE(valid(kShortMail, "\"a@bc.de\""));
  EXPECT_FALSE(valid(kShortMail, "\"abcdef@bc.de\""));
  constexpr std::string_view kName =
      R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":4})";
  EXPECT_TRUE(valid(kName, "\"abcd\""));
  for (const char* text : {"\"a\"", "\"abcde\"", "\"aB\""})
    EXPECT_FALSE(valid(kName, text)) << text;
  constexpr std::string_view kWord =
      R"({"type":"string","pattern":"b","minLength":2,"maxLength":3,"not":{"enum":["bb","abc"]}})";
  EXPECT_TRUE(valid(kWord, R"("a\"b")"));
  for (const char* text : {"\"b\"", "\"bb\"", "\"abc\"", "\"aaa\"", "\"aaab\""})
    EXPECT_FALSE(valid(kWord, text)) << text;
}

TEST(JsonSchema, OlderFormsAndOpenApi) {
  constexpr std::string_view kNull = R"({"type":"object","properties":{"a":{"type":"string",
      "nullable":true},"b":{"allOf":[{"$ref":"#/properties/a"}],"nullable":true},
      "c":{"enum":["x"],"nullable":true}},"required":["a"]})";
  EXPECT_TRUE(valid(kNull, R"({"a":null,"b":null,"c":null})"));
  EXPECT_TRUE(valid(kNull, R"({"a":"x","b":"y","c":"x"})"));
  EXPECT_FALSE(valid(kNull, R"({"a":1})"));
  EXPECT_FALSE(valid(R"({"type":"integer","minimum":3,"exclusiveMinimum":true})", "3"));
  EXPECT_TRUE(valid(R"({"type":"integer","minimum":3,"exclusiveMinimum":false})", "3"));
  constexpr std::string_view kTuple = R"({"type":"array","items":[{"type":"integer"},
      {"type":"string"}],"additionalItems":{"type":"null"},"minItems":2})";
  EXPECT_TRUE(valid(kTuple, R"([1,"a",null])"));
  EXPECT_FALSE(valid(kTuple, R"([1,"a",2])"));
  EXPECT_TRUE(valid(R"s({"$id":"https://example.com/s","$defs":{"a b":{"$anchor":"here",
      "type":"null"}},"type":"array","prefixItems":[{"$ref":"#here"},{"$ref":"#/$defs/a%20b"},
      {"$ref":"https://example.com/s#/$defs/a b"}]})s",
                    "[null,null,null]"));
}

TEST(JsonSchema, NumbersOfAnyBoundsAndMultiples) {
  constexpr std::string_view kPart = R"({"type":"number","minimum":0.5,"exclusiveMaximum":99.25})";
  for (const char* text : {"0.5", "0.50", "1", "99.2499", "10.0"})
    EXPECT_TRUE(valid(kPart, text)) << text;
  for (const char* text : {"0.49", "-0.5", "0", "99.25", "99.3", "100", "1e1"})
    EXPECT_FALSE(valid(kPart, text)) << text;
  EXPECT_TRUE(valid(R"({"type":"number","minimum":-1.5,"maximum":-0.25})", "-1.5"));
  EXPECT_FALSE(valid(R"({"type":"number","minimum":-1.5,"maximum":-0.25})", "-0.2"));
  constexpr std::string_view kCents = R"({"type":"number","multipleOf":0.01,"minimum":0})";
  for (const char* text : {"0", "1.5", "12.34", "0.070"}) EXPECT_TRUE(valid(kCents, text)) << text;
  for (const char* text : {"0.001", "12.345", "-1"}) EXPECT_FALSE(valid(kCents, text)) << text;
  const auto sevens =
      compile({SourceKind::json_schema, R"({"type":"integer","multipleOf":7})"}, "t");
  const auto few = compile(
      {SourceKind::json_schema,
       R"({"type":"integer","multipleOf":25,"minimum":-60,"maximum":300,"not":{"const":50}})"},
      "t");
  for (int i = -400; i <= 400; ++i) {
    EXPECT_EQ(matches(*sevens, std::to_string(i)), i % 7 == 0) << i;
    EXPECT_EQ(matches(*few, std::to_string(i)), i % 25 == 0 && i >= -60 && i <= 300 && i != 50)
        << i;
  }
  EXPECT_TRUE(
      valid(R"({"type":"integer","maximum":18446744073709551615})", "18446744073709551615"));
  EXPECT_FALSE(
      valid(R"({"type":"integer","maximum":18446744073709551615})", "18446744073709551616"));
  EXPECT_TRUE(valid(R"({"type":"number","minimum":-3.4e38,"maximum":3.4e38})", "-12.5"));
  EXPECT_TRUE(valid(R"({"type":"integer","not":{"enum":[3,"x"]}})", "4"));
  EXPECT_FALSE(valid(R"({"type":"integer","not":{"enum":[3,"x"]}})", "3"));
}

TEST(JsonSchema, ListsAreFiltered) {
  EXPECT_FALSE(valid(R"({"enum":["a","bb",3],"not":{"const":"a"}})", "\"a\""));
  EXPECT_TRUE(valid(R"({"enum":["a","bb",3],"minLength":2})", "\"bb\""));
  EXPECT_FALSE(valid(R"({"enum":["a","bb",3],"minLength":2})", "\"a\""));
  EXPECT_TRUE(
      valid(R"({"enum":[{"k":1},{"k":2}],"properties":{"k":{"minimum":2}}})", R"({"k":2})"));
  EXPECT_NE(refused(R"({"enum":["a"],"minLength":2})"), "");
  constexpr std::string_view kUnique =
      R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})";
  for (const char* text : {R"(["a"])", R"(["c","a"])", R"(["b","c","a"])"})
    EXPECT_TRUE(valid(kUnique, text)) << text;
  for (const char* text : {"[]", R"(["a","a"])", R"(["a","b","a"])"})
    EXPECT_FALSE(valid(kUnique, text)) << text;
  constexpr std::string_view kMany = R"({"type":"array","items":{"type":"integer","minimum":1,
      "maximum":20},"uniqueItems":true,"minItems":2,"maxItems":3})";
  EXPECT_TRUE(valid(kMany, "[3,17]"));
  for (const char* text : {"[3]", "[3,3]", "[1,2,3,4]"}) EXPECT_FALSE(valid(kMany, text)) << text;
  constexpr std::string_view kHas = R"({"type":"array","items":{"type":"integer"},"contains":
      {"minimum":10},"maxItems":3})";
  for (const char* text : {"[10]", "[1,12]", "[11,1,2]"}) EXPECT_TRUE(valid(kHas, text)) << text;
  for (const char* text : {"[]", "[1,2]", "[1,2,3,12]"}) EXPECT_FALSE(valid(kHas, text)) << text;
}

TEST(JsonSchema, ConditionsOfObjects) {
  constexpr std::string_view kIf =
      R"({"type":"object","properties":{"kind":{"enum":["card","cash"]},
      "number":{"type":"string"}},"required":["kind"],"additionalProperties":false,
      "if":{"properties":{"kind":{"const":"card"}}},"then":{"required":["number"]},
      "else":{"properties":{"number":false}}})";
  EXPECT_TRUE(valid(kIf, R"({"kind":"card","number":"1"})"));
  EXPECT_TRUE(valid(kIf, R"({"kind":"cash"})"));
  EXPECT_FALSE(valid(kIf, R"({"kind":"card"})"));
  EXPECT_FALSE(valid(kIf, R"({"kind":"cash","number":"1"})"));
  constexpr std::string_view kNeeds = R"({"type":"object","properties":{"a":{"type":"null"},
      "b":{"type":"null"}},"dependentRequired":{"a":["b"]}})";
  EXPECT_TRUE(valid(kNeeds, "{}"));
  EXPECT_TRUE(valid(kNeeds, R"({"a":null,"b":null})"));
  EXPECT_FALSE(valid(kNeeds, R"({"a":null})"));
  constexpr std::string_view kNot = R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"integer"}},"not":{"required":["a","b"]}})";
  EXPECT_TRUE(valid(kNot, R"({"a":1})"));
  EXPECT_FALSE(valid(kNot, R"({"a":1,"b":1})"));
}

TEST(JsonSchema, KeysByPatternsAndNames) {
  constexpr std::string_view kPatterns = R"({"type":"object","properties":{"id":{"type":"null"}},
      "patternProperties":{"^s_":{"type":"string"},"_n$":{"maxLength":2}},
      "additionalProperties":false})";
  EXPECT_TRUE(valid(kPatterns, R"({"id":null,"s_a":"long","s_n":"x"})"));
  for (const char* text : {R"({"s_a":1})", R"({"x":1})", R"({"s_n":"long"})"})
    EXPECT_FALSE(valid(kPatterns, text)) << text;
  constexpr std::string_view kRecord = R"({"type":"object","propertyNames":{"type":"string",
      "enum":["a","b"]},"additionalProperties":{"type":"integer"},"required":["a","b"]})";
  EXPECT_TRUE(valid(kRecord, R"({"a":1,"b":2})"));
  EXPECT_FALSE(valid(kRecord, R"({"a":1})"));
  EXPECT_FALSE(valid(kRecord, R"({"a":1,"b":2,"c":3})"));
  constexpr std::string_view kNames = R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$",
      "maxLength":3},"additionalProperties":{"type":"integer"}})";
  EXPECT_TRUE(valid(kNames, R"({"abc":1})"));
  EXPECT_FALSE(valid(kNames, R"({"abcd":1})"));
  EXPECT_FALSE(valid(kNames, R"({"A":1})"));
  constexpr std::string_view kCounted = R"({"type":"object","properties":{"a":{"type":"null"},
      "b":{"type":"null"},"c":{"type":"null"}},"minProperties":1,"maxProperties":2})";
  for (const char* text : {R"({"a":null})", R"({"a":null,"c":null})", R"({"b":null,"c":null})"})
    EXPECT_TRUE(valid(kCounted, text)) << text;
  for (const char* text : {"{}", R"({"a":null,"b":null,"c":null})"})
    EXPECT_FALSE(valid(kCounted, text)) << text;
  // An impossible member leaves the others.
  EXPECT_TRUE(valid(R"({"type":"object","properties":{"a":{"not":{}},"b":{"type":"null"}}})",
                    R"({"b":null})"));
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
       {Case{R"({"properties":{"a":{"not":{}}},"required":["a"]})", "false is valid for no value"},
        {R"({"type":"array","uniqueItems":true})", "uniqueItems is supported where items lists"},
        {R"({"not":{"multipleOf":3}})", "at /not: multipleOf within not or if is not supported"},
        {R"({"type":"number","multipleOf":0.123456789012})", "multipleOf has more than"},
        {R"({"type":"number","multipleOf":0})", "multipleOf must be a number above 0"},
        {R"({"type":"array","contains":true,"prefixItems":[true]})", "contains beside prefixItems"},
        {R"({"type":"integer","minimum":3,"maximum":2})", "no number lies between"},
        {R"s({"type":"string","pattern":"(?<=a)"})s", "pattern: the regular expression, byte"},
        {R"s({"type":"string","pattern":"(a{1,99}b{1,99}){9}c*","maxLength":9999})s",
         "too complex"},
        {R"({"type":"string","pattern":"^a$","minLength":2})", "no string is valid by all"},
        {R"({"$ref":"#/$defs/x"})", "names nothing"},
        {R"({"$ref":"http://example.com/x"})", "$ref must name a place"},
        {R"({"$ref":"#x"})", "names nothing"},
        {R"({"type":"text"})", "type must be"},
        {R"({"enum":3})", "enum must be a list"},
        {R"({"type":"integer","enum":["a"]})", "no value is valid"},
        {R"({"type":"object","required":["a"],"additionalProperties":false})", "is not one of the"},
        {R"({"type":"string","maxLength":-1})", "maxLength must be an integer"},
        {R"({"anyOf":[]})", "anyOf must be a list"},
        {R"({"properties":{"a":false},"required":["a"]})", "at /properties/a: false is valid"},
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
                        "type":"integer","x-order":1,"deprecated":true,"ui:widget":"updown","a~/b":1,
                        "format":"int32","uniqueItems":false,"nullable":false,"minContains":0,
                        "unevaluatedProperties":true,"patternProperties":{},"then":{}})",
                    "12"));
  EXPECT_TRUE(valid(R"({"type":"string","format":"iban","contentEncoding":"base64"})", "\"x\""));
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
