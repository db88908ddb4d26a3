// Tools that a chat may call, and what its answer has to be.
#include "src/serve/apis/tool_choice.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/serve/apis/chat_completion.h"
#include "tests/grammar/matching.h"
#include "tests/serve/demo.h"

namespace sluice {
namespace {

const char* const kTools = R"("tools": [
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"z": {"type": "integer"}, "a": {"type": "boolean"}}, "required": ["z", "a"]}}},
  {"type": "function", "function": {"name": "g", "parameters": {}}}])";

// A template whose calls are found, and not held.
const char* const kFoundOnly = "{{ tools }}<|tool_call_start|>";

class ToolChoiceTest : public testing::Test {
 protected:
  Chat chat(const std::string& members, const std::string& chat_template = "<tool_call>") {
    const std::string body = R"({"messages": [{"role": "user", "content": "x"}], )" + members + "}";
    template_.emplace(ChatFiles{}, "template", chat_template);
    return parse_chat(
        parse_ordered(body, "the request"), body.size(), "the request",
        {.checkpoint = planner_.checkpoint(), .max_model_len = 1000, .api = Api::chat}, *template_,
        [](uint64_t) {});
  }
  // Returns whether its answer may be this.
  bool allows(const std::string& members, std::string_view text,
              const std::string& form = "<tool_call>") {
    const auto grammar = chat(members, form).asked.request.sampling.grammar;
    return !grammar || grammar::matches(*grammar->grammar, text);
  }
  std::string refusal(const std::string& members, const std::string& form = "<tool_call>") {
    try {
      chat(members, form);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }
  static std::string call(const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  }
  static std::string with(const std::string& members) { return kTools + (", " + members); }

 private:
  Planner planner_{test::demo_options()};
  std::optional<ChatTemplate> template_;
};

TEST_F(ToolChoiceTest, CallsThatMustBe) {
  const std::string f = call("f", R"({"z": 1, "a": true})"), g = call("g", "{}");
  const std::string must = with(R"("tool_choice": "required")");
  EXPECT_TRUE(allows(must, f));
  EXPECT_TRUE(allows(must, f + "\n" + g));
  EXPECT_FALSE(allows(must, "text"));
  EXPECT_FALSE(allows(must, call("f", R"({"a": true, "z": 1})"))) << "the order of the body";
  const std::string named =
      with(R"("tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_TRUE(allows(named, g));
  EXPECT_FALSE(allows(named, f));
  EXPECT_FALSE(allows(named, g + "\n" + g));
  const std::string allowed = with(R"("tool_choice": {"type": "allowed_tools", "allowed_tools":
      {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}})");
  EXPECT_TRUE(allows(allowed, "text"));
  EXPECT_TRUE(allows(allowed, g));
  EXPECT_FALSE(allows(allowed, f));
}

TEST_F(ToolChoiceTest, OneCallAtMost) {
  // The model's own words stay as they are, such as the order of arguments, or a text of JSON where
  // calls have no tags; what is too much is left out.
  const std::string f = call("f", R"({"a": true, "z": 1})"), g = call("g", "{}");
  const Chat one = chat(with(R"("parallel_tool_calls": false)"));
  EXPECT_EQ(one.asked.request.sampling.grammar, nullptr);
  RequestResult result;
  result.text = f + "\n" + g;
  result.finish_reason = "stop";
  const ChatReply reply = chat_reply(one.form, result);
  ASSERT_EQ(reply.calls.size(), 1);
  EXPECT_EQ(reply.calls[0].arguments, R"({"a": true, "z": 1})");
  const std::string must = with(R"("tool_choice": "required", "parallel_tool_calls": false)");
  EXPECT_TRUE(allows(must, g));
  EXPECT_FALSE(allows(must, g + "\n" + g));
}

TEST_F(ToolChoiceTest, NothingIsHeldWhereNothingIsAsked) {
  for (const char* more : {R"("tool_choice": "auto")", R"("tool_choice": "none")",
                           R"("tool_choice": "none", "parallel_tool_calls": false)"})
    EXPECT_EQ(chat(with(more)).asked.request.sampling.grammar, nullptr) << more;
  EXPECT_EQ(chat(R"("parallel_tool_calls": false)").asked.request.sampling.grammar, nullptr);
  EXPECT_EQ(
      chat(with(R"("parallel_tool_calls": false)"), kFoundOnly).asked.request.sampling.grammar,
      nullptr);
}

TEST_F(ToolChoiceTest, StrictToolsAreHeldWhereTheyAreCalled) {
  const std::string strict = R"("tools": [{"type": "function", "function": {"name": "f",
      "strict": true, "parameters": {"type": "object", "properties": {"x": {"type": "null"}}}}}])";
  EXPECT_TRUE(allows(strict, "text"));
  EXPECT_TRUE(allows(strict, call("f", R"({"x": null})")));
  EXPECT_FALSE(allows(strict, call("f", R"({"x": 1})")));
  EXPECT_NE(refusal(strict, kFoundOnly).find("no known tool-call format"), std::string::npos);
}

TEST_F(ToolChoiceTest, AnyTemplateHasAFormThatIsHeld) {
  const std::string must = with(R"("tool_choice": "required")"), g = call("g", "{}");
  for (const char* other :
       {"unknown", "{{ tools | tojson }}", "{{ messages[0].content }}", kFoundOnly}) {
    EXPECT_TRUE(allows(must, g + "\n" + g, other)) << other;
    EXPECT_FALSE(allows(must, "text", other)) << other;
    const ChatForm form = chat(must, other).form;
    RequestResult result;
    result.text = g;
    result.finish_reason = "stop";
    const ChatReply reply = chat_reply(form, result);
    ASSERT_EQ(reply.calls.size(), 1) << other;
    EXPECT_EQ(reply.calls[0].name, "g");
  }
}

TEST_F(ToolChoiceTest, ATemplateThatShowsOneCallLetsOneBe) {
  const std::string one =
      "{% if tools %}{{ tools }}{% endif %}<tool_call>{% for m in messages %}{{ m.content }}"
      "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}"
      "{% endif %}{{ m.tool_calls[0].function.arguments.x }}{% endif %}{% endfor %}";
  const std::string must = with(R"("tool_choice": "required")"), g = call("g", "{}");
  EXPECT_TRUE(allows(must, g, one));
  EXPECT_FALSE(allows(must, g + "\n" + g, one));
  EXPECT_FALSE(chat(must, one).form.parallel_calls);
}

TEST_F(ToolChoiceTest, ThoughtsAreNotOfTheFormat) {
  const std::string object = R"("response_format": {"type": "json_object"})";
  const std::string thinks = "x{# <think></think> #}", has_begun = "<think>{# </think> #}",
                    only_ends = "x{# </think> #}";
  for (const char* good : {"{}", "<think>x</think>{}", "<think>x {} y</think>\n\n{\"a\": 1}"})
    EXPECT_TRUE(allows(object, good, thinks)) << good;
  for (const char* bad : {"", "x", "x{}", "<think>{}", "<think>x</think>", "<think>x</think>y",
                          "<think>x</think>{}x", "<think>x</think><think>y</think>{}"})
    EXPECT_FALSE(allows(object, bad, thinks)) << bad;
  for (const std::string& begun : {has_begun, only_ends}) {
    EXPECT_TRUE(allows(object, "x</think>{}", begun));
    EXPECT_FALSE(allows(object, "{}", begun)) << "the thoughts have no end";
  }
  EXPECT_FALSE(allows(object, "<think>x</think>{}")) << "a template without thoughts";
}

TEST_F(ToolChoiceTest, WhatCannotBeIsRefused) {
  EXPECT_NE(refusal(R"("tool_choice": "required")").find("needs tools"), std::string::npos);
  EXPECT_NE(refusal(with(R"("tool_choice": "some")")).find("\"some\""), std::string::npos);
  EXPECT_NE(refusal(with(R"("tool_choice": {"type": "custom"})")).find("custom"),
            std::string::npos);
  EXPECT_NE(refusal(with(R"("tool_choice": {"type": "function", "function": {"name": "h"}})"))
                .find("unknown tool \"h\""),
            std::string::npos);
  EXPECT_NE(refusal(R"("tools": {"x": 1})").find("list"), std::string::npos);
  std::string many =
      R"("tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "x": {)";
  for (int i = 0; i < 1500; ++i) many += fmt::format("\"k{}\": 0, ", i);
  EXPECT_NE(refusal(many + R"("k": 0}}}])").find("members"), std::string::npos);
}

TEST_F(ToolChoiceTest, ToolsAreFunctions) {
  for (const char* bad :
       {"{}", "[null]", R"([{"type": "function"}])",
        R"([{"type": "custom", "custom": {"name": "f"}}])", R"([{"function": {"name": 1}}])",
        R"([{"function": {"name": "f", "description": []}}])",
        R"([{"function": {"name": "f", "parameters": []}}])"})
    EXPECT_NE(refusal(R"("tools": )" + std::string(bad)), "") << bad;
  EXPECT_EQ(
      refusal(
          R"("tools": [{"function": {"name": "a b.c", "description": null, "parameters": null}}])"),
      "");
}

}  // namespace
}  // namespace sluice
