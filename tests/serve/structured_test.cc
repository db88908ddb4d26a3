// The parameters of structured output, and the order of a schema's members.
#include "src/serve/apis/structured.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/serve/batch/batch_file.h"
#include "tests/grammar/matching.h"
#include "tests/serve/demo.h"

namespace sluice {
namespace {

class StructuredTest : public testing::Test {
 protected:
  std::shared_ptr<const grammar::TokenGrammar> found(const OrderedJson& body) {
    return grammar_of(OrderedFields(body, "body"), planner_.checkpoint());
  }
  std::string refusal(const OrderedJson& body) {
    try {
      found(body);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }
  bool matches(const OrderedJson& body, std::string_view text) {
    return grammar::matches(*found(body)->grammar, text);
  }

 private:
  Planner planner_{test::demo_options()};
};

OrderedJson response_format(const char* text) {
  return {{"response_format", OrderedJson::parse(text)}};
}

TEST_F(StructuredTest, NothingIsAskedFor) {
  for (const char* body :
       {"{}", R"({"response_format":{"type":"text"}})", R"({"response_format":null})",
        R"({"guided_json":null,"guided_regex":"","guided_choice":[],"structured_outputs":{}})",
        R"({"structured_outputs":{"json":null,"json_object":false,"whitespace_pattern":null}})"})
    EXPECT_EQ(found(OrderedJson::parse(body)), nullptr) << body;
}

TEST_F(StructuredTest, EachParameterSaysWhatItsTextMatches) {
  const OrderedJson schema = {{"type", "integer"}};
  EXPECT_TRUE(matches(response_format(R"({"type":"json_object"})"), R"({"a": 1})"));
  EXPECT_TRUE(matches(response_format(
                          R"({"type":"json_schema","json_schema":{"name":"n","strict":true,
                              "schema":{"type":"integer"}}})"),
                      "12"));
  // llama.cpp's server has both.
  for (const char* type : {"json_object", "json_schema"}) {
    const OrderedJson format = {{"type", type}, {"schema", schema}};
    EXPECT_TRUE(matches({{"response_format", format}}, "12")) << type;
    EXPECT_FALSE(matches({{"response_format", format}}, "{}")) << type;
  }
  EXPECT_TRUE(matches({{"structured_outputs", {{"json", schema}}}}, "12"));
  EXPECT_TRUE(matches({{"structured_outputs", {{"json", schema.dump()}}}}, "12"));
  EXPECT_TRUE(matches({{"structured_outputs", {{"regex", "[ab]+"}}}}, "abba"));
  EXPECT_TRUE(matches({{"structured_outputs", {{"choice", {"yes", "no"}}}}}, "no"));
  EXPECT_TRUE(matches({{"structured_outputs", {{"grammar", "root ::= \"a\"+"}}}}, "aaa"));
  EXPECT_TRUE(matches({{"structured_outputs", {{"json_object", true}}}}, "{}"));
  EXPECT_TRUE(matches({{"guided_json", schema}}, "12"));
  EXPECT_TRUE(matches({{"guided_regex", "[ab]+"}}, "abba"));
  EXPECT_TRUE(matches({{"guided_choice", {"yes", "no"}}}, "no"));
  EXPECT_TRUE(matches({{"guided_grammar", "root ::= \"a\"+"}}, "aaa"));
}

TEST_F(StructuredTest, ErrorsNameTheParameter) {
  EXPECT_EQ(
      refusal(response_format(R"({"type":"yaml"})")),
      "body: response_format: unknown type \"yaml\"; must be text, json_object or json_schema");
  EXPECT_NE(refusal(response_format(R"({"type":"json_schema","json_schema":{"schema":
                {"properties":{"a":{"type":"x"}}}}})"))
                .find("body: response_format: json_schema: the schema at /properties/a: type must"),
            std::string::npos);
  EXPECT_NE(refusal(response_format(R"({"type":"json_schema"})")), "");
  EXPECT_NE(refusal({{"guided_regex", 5}}).find("body: guided_regex: must be a string"),
            std::string::npos);
  EXPECT_NE(refusal({{"structured_outputs", {{"structural_tag", "x"}}}}).find("structural_tag"),
            std::string::npos);
  EXPECT_NE(refusal({{"guided_regex", "a"}, {"guided_choice", {"b"}}}).find("guided_choice"),
            std::string::npos);
}

TEST_F(StructuredTest, MembersKeepTheOrderOfTheText) {
  const std::string schema = R"({"type":"object","properties":{"z":{"type":"integer"},)"
                             R"("a":{"type":"integer"}},"required":["z","a"]})";
  for (const std::string& body :
       {R"({"response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}}",
        R"({"response_format":{"type":"json_object","schema":)" + schema + "}}",
        R"({"structured_outputs":{"json":)" + schema + "}}", R"({"guided_json":)" + schema + "}"}) {
    const OrderedJson alone = parse_ordered(body, "body");
    EXPECT_TRUE(matches(alone, R"({"z":1,"a":2})")) << body;
    EXPECT_FALSE(matches(alone, R"({"a":2,"z":1})")) << body;
    const std::string line =
        R"({"custom_id":"1","method":"POST","url":"/v1/completions","body":)" + body + "}";
    const BatchLine read = parse_batch_line(line, "file", 1);
    EXPECT_EQ(read.fault, "");
    EXPECT_TRUE(matches(read.body, R"({"z":1,"a":2})")) << body;
  }
}

}  // namespace
}  // namespace sluice
