// Requests of other APIs as requests for chat completions.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/serve/apis/messages_request.h"
#include "src/serve/apis/neighbours.h"
#include "src/serve/apis/parameters.h"
#include "src/serve/apis/responses_request.h"

namespace sluice {
namespace {

std::string of_messages(std::string_view text) {
  return dump_ordered(chat_of_messages(parse_ordered(text, "it"), "it", true));
}
std::string of_responses(std::string_view text) {
  return dump_ordered(chat_of_responses(parse_ordered(text, "it"), "it"));
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  const std::string chat = of_messages(R"({"model": "m", "max_tokens": 5, "stop_sequences": ["x"],
    "system": [{"type": "text", "text": "S"}], "metadata": {}, "thinking": {"type": "disabled"},
    "tools": [{"name": "f", "input_schema": {"z": 1, "a": 2}}, {"type": "web_search_1", "name": "w"}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "messages": [
      {"role": "user", "content": "U"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "T"}, {"type": "text", "text": "A"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"q": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "text", "text": "R"}]}, {"type": "text", "text": "V"}]}]})");
  EXPECT_EQ(Json::parse(chat), Json::parse(R"({"model": "m", "max_tokens": 5, "stop": ["x"],
    "chat_template_kwargs": {"enable_thinking": false, "thinking": false}, "tool_choice": "required",
    "parallel_tool_calls": false,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
      {"role": "assistant", "content": "A", "reasoning_content": "T", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"q": 1}}}]},
      {"role": "tool", "content": "R", "tool_call_id": "1"}, {"role": "user", "content": "V"}]})"));
  EXPECT_NE(chat.find(R"({"z":1,"a":2})"), std::string::npos) << "the order of keys is lost";
}

TEST(MessagesRequest, NewerBlocksAreTextsOrArePassedOver) {
  const std::string chat = of_messages(R"({"max_tokens": 5, "system": "S", "messages": [
      {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "document", "title": "T",
        "source": {"type": "text", "media_type": "text/plain", "data": "D"}}]},
      {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "x", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "R"}]},
        {"type": "text", "text": "A", "citations": null}]},
      {"role": "system", "content": [{"type": "text", "text": "N", "cache_control": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [
        {"type": "tool_reference", "tool_name": "g"}]}]}]})");
  EXPECT_EQ(Json::parse(chat).at("messages"), Json::parse(R"([{"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "text", "text": "T\nD"}]},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "m", "type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "R", "tool_call_id": "m"}, {"role": "assistant", "content": "A"},
    {"role": "system", "content": "N"}, {"role": "tool", "content": "g", "tool_call_id": "1"}])"));
}

TEST(MessagesRequest, AToolIsNamed) {
  const std::string chat = of_messages(R"({"max_tokens": 1, "messages": [],
    "tools": [{"name": "f", "strict": true}], "tool_choice": {"type": "tool", "name": "f"}})");
  EXPECT_EQ(Json::parse(chat), Json::parse(R"({"max_tokens": 1, "messages": [],
    "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}})"));
}

TEST(MessagesRequest, OutputsHaveSchemasAndEffort) {
  const std::string schema = R"({"type": "json_schema", "schema": {"z": 1, "a": 2}})";
  for (const std::string& output :
       {R"("output_config": {"effort": "low", "format": )" + schema + "}",
        R"("output_config": {"effort": "low"}, "output_format": )" + schema}) {
    const std::string chat = of_messages(
        R"({"max_tokens": 1, "messages": [], "cache_control": {"type": "ephemeral"}, )" + output +
        "}");
    EXPECT_EQ(Json::parse(chat), Json::parse(R"({"max_tokens": 1, "messages": [],
      "reasoning_effort": "low", "response_format": {"type": "json_schema",
      "json_schema": {"schema": {"z": 1, "a": 2}}}})"));
    EXPECT_NE(chat.find(R"({"z":1,"a":2})"), std::string::npos) << "the order of keys is lost";
  }
}

TEST(MessagesRequest, ABegunAnswerGoesOn) {
  auto goes_on = [](const std::string& content) {
    const Json chat = Json::parse(of_messages(
        R"({"max_tokens": 1, "messages": [{"role": "user", "content": "U"},
            {"role": "assistant", "content": )" +
        content + "}]}"));
    return chat.contains("continue_final_message");
  };
  EXPECT_TRUE(goes_on(R"("A")"));
  EXPECT_TRUE(goes_on(R"([{"type": "text", "text": "A"}])"));
  EXPECT_FALSE(goes_on(R"([{"type": "text", "text": "A"},
    {"type": "tool_use", "id": "1", "name": "f", "input": {}}])"));
}

TEST(MessagesRequest, ToolsThatTheServiceRunsAreLeftOut) {
  const std::string chat = of_messages(R"({"max_tokens": 1, "messages": [], "tools": [
    {"type": "mcp_toolset", "mcp_server_name": "x"}, {"type": null, "name": "f", "input_schema": null}]})");
  EXPECT_EQ(Json::parse(chat).at("tools"),
            Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])"));
}

std::vector<std::string> told_of(const std::string& tools, const std::string& messages) {
  const Json chat = Json::parse(
      of_messages(R"({"max_tokens": 1, "tools": )" + tools + R"(, "messages": )" + messages + "}"));
  std::vector<std::string> names;
  for (const Json& tool : chat.value("tools", Json::array()))
    names.push_back(tool.at("function").at("name"));
  return names;
}

TEST(MessagesRequest, ToolsComeAndGo) {
  using Names = std::vector<std::string>;
  const std::string tools = R"([{"name": "a"}, {"name": "b", "defer_loading": true}])";
  EXPECT_EQ(told_of(tools, "[]"), Names{"a"});
  EXPECT_EQ(told_of(R"([{"name": "b", "defer_loading": true},
                        {"type": "tool_search_tool_bm25_20251119", "name": "s"}])",
                    "[]"),
            Names{"b"});
  const std::string found =
      R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
    "content": [{"type": "tool_reference", "tool_name": "b"}]}]})";
  EXPECT_EQ(told_of(tools, "[" + found + "]"), (Names{"a", "b"}));
  const std::string changed = R"({"role": "system", "content": [
    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}},
    {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "m"}},
    {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "c"}}},
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}]})";
  EXPECT_EQ(told_of(tools, "[" + changed + "]"), (Names{"b", "c"}));
  const std::string back = R"({"role": "system", "content": [
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "a"}}]})";
  EXPECT_EQ(told_of(tools, "[" + changed + "," + back + "]"), (Names{"a", "b", "c"}));
  const Json chat = Json::parse(of_messages(R"({"max_tokens": 1, "messages": [)" + changed +
                                            R"(, {"role": "user", "content": "U"}]})"));
  EXPECT_EQ(chat.at("messages").size(), 1) << "a message that only changes tools says nothing";
  EXPECT_THROW(
      told_of(tools, R"([{"role": "system", "content": [{"type": "tool_addition", "tool": 1}]}])"),
      Error);
}

TEST(MessagesRequest, WhatIsNotForTheModelIsLeftOut) {
  const Json chat = Json::parse(of_messages(R"({"max_tokens": 1, "system": [
      {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=2;"}, {"type": "text", "text": "S"}],
    "messages": [{"role": "user", "content": "U"},
      {"role": "system", "content": "once", "clear_at": "next_user_message"},
      {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "fallback", "from": {}, "to": {}}]},
      {"role": "user", "content": "V"},
      {"role": "system", "content": "now", "clear_at": "next_user_message"}]})"));
  EXPECT_EQ(chat.at("messages"), Json::parse(R"([{"role": "system", "content": "S"},
    {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"},
    {"role": "user", "content": "V"}, {"role": "system", "content": "now"}])"));
}

TEST(MessagesRequest, WhatIsNoneIsRefused) {
  for (const char* bad :
       {"[]", R"({"messages": []})", R"({"max_tokens": 1})",
        R"({"max_tokens": 1, "messages": [1]})",
        R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]})",
        R"({"max_tokens": 1, "messages": [{"role": "user"}]})",
        R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "base64", "data": "JVBE"}}]}]})",
        R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
        R"({"max_tokens": 1, "messages": [], "tools": ["x"]})",
        R"({"max_tokens": 1, "messages": [], "tools": [{"name": "f", "description": 1}]})",
        R"({"max_tokens": 1, "messages": [], "tools": [{"name": "f", "input_schema": []}]})",
        R"({"max_tokens": 1, "messages": [], "output_config": {"format": {"type": 5}}})",
        R"({"max_tokens": 1, "messages": [], "output_config": true})"}) {
    EXPECT_THROW(of_messages(bad), Error) << bad;
  }
}

TEST(ResponsesRequest, ItemsBecomeMessages) {
  const std::string chat = of_responses(R"({"model": "m", "instructions": "S", "store": true,
    "max_output_tokens": 5, "reasoning": {"effort": "low"}, "include": [],
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": true}, {"type": "web_search"}],
    "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "U"}]},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "T"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "R"}]})");
  EXPECT_EQ(Json::parse(chat), Json::parse(R"({"model": "m", "max_completion_tokens": 5,
    "reasoning_effort": "low",
    "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
      {"role": "assistant", "content": "A", "reasoning_content": "T", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "R"}]})"));
  EXPECT_EQ(Json::parse(of_responses(R"({"input": "U"})")),
            Json::parse(R"({"messages": [{"role": "user", "content": "U"}]})"));
}

TEST(ResponsesRequest, ItemsOfOtherToolsAreCallsOrArePassedOver) {
  const std::string chat = of_responses(R"({"chat_template_kwargs": {"x": 1}, "input": [
    {"type": "reasoning", "summary": [], "content": null, "encrypted_content": "="},
    {"type": "web_search_call", "id": "w", "status": "completed"},
    {"type": "local_shell_call", "call_id": "1", "status": "completed",
     "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "1", "output": "a"},
    {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "ok"},
    {"type": "shell_call_output", "call_id": "3", "output": [{"stdout": "b", "stderr": ""}]}]})");
  const Json call = Json::parse(R"({"role": "assistant", "content": "", "tool_calls": [{"id": "1",
    "type": "function", "function": {"name": "local_shell",
    "arguments": "{\"type\":\"exec\",\"command\":[\"ls\"]}"}}]})");
  const Json parsed = Json::parse(chat), &messages = parsed.at("messages");
  ASSERT_EQ(messages.size(), 5);
  EXPECT_EQ(messages.at(0), call);
  EXPECT_EQ(messages.at(1).at("content"), "a");
  EXPECT_EQ(messages.at(2).at("tool_calls").at(0).at("function").at("arguments"),
            R"({"input":"*** Begin"})");
  EXPECT_EQ(messages.at(4).at("content"), R"([{"stdout":"b","stderr":""}])");
  EXPECT_EQ(parsed.at("chat_template_kwargs"), Json::parse(R"({"x": 1})"));
  for (const char* bad : {R"([{"type": "dance"}])", R"([{"type": "dance_call", "call_id": "1"}])",
                          R"([{"type": "computer_call_output", "call_id": "1",
                               "output": {"type": "computer_screenshot"}}])",
                          R"([{"type": "function_call_output", "call_id": "1",
                               "output": [{"type": "input_image"}]}])"})
    EXPECT_THROW(of_responses(std::string(R"({"input": )") + bad + "}"), Error) << bad;
}

TEST(ResponsesRequest, InstructionsAreOneMessage) {
  const std::string chat = of_responses(R"({"instructions": "S", "input": [
    {"role": "developer", "content": "D"}, {"role": "user", "content": "U"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "developer", "content": "E"}]})");
  EXPECT_EQ(Json::parse(chat).at("messages"), Json::parse(R"([
    {"role": "system", "content": "S\n\nD"}, {"role": "user", "content": "U"},
    {"role": "assistant", "content": "no"}, {"role": "developer", "content": "E"}])"));
}

TEST(ResponsesRequest, ToolsOfANamespaceHaveItInTheirName) {
  const Json chat = Json::parse(of_responses(R"({"tools": [
      {"type": "function", "name": "f"}, {"type": "web_search"},
      {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g", "parameters": {"a": 1}},
        {"type": "custom", "name": "h"}]}],
    "tool_choice": {"type": "function", "name": "g", "namespace": "n"},
    "input": [{"type": "function_call", "call_id": "1", "name": "g", "namespace": "n", "arguments": "{}"}]})"));
  EXPECT_EQ(chat.at("tools"),
            Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}},
    {"type": "function", "function": {"name": "n__g", "namespace": "n", "parameters": {"a": 1}}}])"));
  EXPECT_EQ(chat.at("tool_choice"),
            Json::parse(R"({"type": "function", "function": {"name": "n__g"}})"));
  EXPECT_EQ(chat.at("messages").at(0).at("tool_calls").at(0).at("function").at("name"), "n__g");
}

TEST(ResponsesRequest, SomeToolsAreAllowed) {
  const Json chat = Json::parse(of_responses(
      R"({"input": "U", "tool_choice": {"type": "allowed_tools", "mode": "required",
          "tools": [{"type": "function", "name": "f"}]}})"));
  EXPECT_EQ(chat.at("tool_choice"), Json::parse(R"({"type": "allowed_tools", "allowed_tools":
    {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}})"));
}

TEST(ResponsesRequest, AnswersRepeatIt) {
  const OrderedJson body =
      OrderedJson::parse(R"({"input": "U", "instructions": "S", "metadata": {"a": "b"},
    "truncation": null, "store": true, "max_output_tokens": 5})");
  const Json echo = response_echo(body);
  for (const char* same : {"instructions", "metadata", "max_output_tokens"})
    EXPECT_EQ(echo.at(same), Json(body.at(same)));
  EXPECT_EQ(echo.at("truncation"), "disabled");
  EXPECT_EQ(echo.at("store"), false) << "nothing is kept";
  EXPECT_FALSE(echo.contains("input"));
}

// Both APIs pass parameters of others on, and leave known ones as they are.
TEST(ApiRequests, FurtherParametersGoOn) {
  const Json messages = Json::parse(of_messages(
      R"({"max_tokens": 1, "messages": [], "min_p": 0.1, "metadata": {}, "stop": "x"})"));
  EXPECT_EQ(messages.at("min_p"), 0.1);
  EXPECT_EQ(messages.at("stop"), "x");
  EXPECT_FALSE(messages.contains("metadata"));
  const Json responses =
      Json::parse(of_responses(R"({"input": "x", "n": 2, "messages": 5, "store": true})"));
  EXPECT_EQ(responses.at("n"), 2);
  EXPECT_TRUE(responses.at("messages").is_array());
  EXPECT_FALSE(responses.contains("store"));
}

OrderedJson ours(OrderedJson body, bool chat = true) {
  put_in_our_names(body, "it", chat);
  return body;
}

TEST(ApiRequests, IntegersBeyond64BitsKeepTheirDigits) {
  const std::string digits = "123456789012345678901234567890";
  const std::string messages = of_messages(R"({"max_tokens": 1, "x": )" + digits +
                                           R"(, "messages": [{"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "f", "input": {"n": )" +
                                           digits + "}}]}]}");
  EXPECT_NE(messages.find(R"("arguments":{"n":)" + digits + "}"), messages.npos) << messages;
  EXPECT_NE(messages.find(R"("x":)" + digits), messages.npos) << messages;
  const std::string responses = of_responses(
      R"({"input": [{"type": "shell_call_output", "call_id": "1", "output": [)" + digits + "]}]}");
  EXPECT_NE(responses.find("[" + digits + "]"), responses.npos) << responses;
  EXPECT_THROW(of_responses(R"({"input": )" + digits + "}"), Error);
  const std::string body = R"({"n_predict": 3, "x": )" + digits + "}";
  EXPECT_EQ(dump_ordered(ours(parse_ordered(body, "it"))),
            R"({"x":)" + digits + R"(,"max_tokens":3})");
}

TEST(ApiRequests, NeighboursParametersInOurNames) {
  EXPECT_EQ(ours({{"prompt", "x"}}, false), OrderedJson({{"prompt", "x"}}));
  EXPECT_EQ(
      ours({{"grammar", "root ::= \"a\""}, {"n_predict", -1}, {"repeat_penalty", 1.1}}),
      OrderedJson(
          {{"guided_grammar", "root ::= \"a\""}, {"max_tokens", -1}, {"repetition_penalty", 1.1}}));
  EXPECT_EQ(ours({{"n_predict", 5}, {"max_tokens", 3}, {"grammar", ""}}),
            OrderedJson({{"max_tokens", 3}}));
  EXPECT_EQ(ours({{"options", {{"num_predict", 4}, {"top_k", 2}, {"num_ctx", 4096}}},
                  {"format", "json"}}),
            OrderedJson(
                {{"max_tokens", 4}, {"top_k", 2}, {"response_format", {{"type", "json_object"}}}}));
  const OrderedJson off = {{"enable_thinking", false}, {"thinking", false}};
  EXPECT_EQ(ours({{"enable_thinking", false}}), OrderedJson({{"chat_template_kwargs", off}}));
  EXPECT_EQ(ours({{"think", false}}), OrderedJson({{"chat_template_kwargs", off}}));
  EXPECT_EQ(ours({{"thinking", {{"type", "disabled"}}}}),
            OrderedJson({{"chat_template_kwargs", off}}));
  EXPECT_EQ(ours({{"reasoning", {{"effort", "low"}}}}), OrderedJson({{"reasoning_effort", "low"}}));
  EXPECT_EQ(ours({{"reasoning", {{"effort", "low"}}}}, false).count("reasoning"), 1);
}

TEST(ApiRequests, UnknownParametersArePassedOverOrRefused) {
  const OrderedJson body = {{"prompt", "x"}, {"cache_prompt", true}};
  UnknownParameters lenient(false), strict(true);
  EXPECT_NO_THROW(check_parameters(body, "it", Api::completions, &lenient));
  EXPECT_THROW(check_parameters(body, "it", Api::completions, &strict), Error);
  EXPECT_THROW(check_parameters(body, "it", Api::batch), Error);
  const OrderedJson asks = {{"prompt", "x"}, {"suffix", "y"}};
  EXPECT_THROW(check_parameters(asks, "it", Api::completions, &lenient), Error);
}

TEST(ResponsesRequest, WhatIsNoneIsRefused) {
  for (const char* bad :
       {"1", "{}", R"({"input": 1})", R"({"input": [{"type": "x"}]})",
        R"({"input": "x", "previous_response_id": "r"})", R"({"input": "x", "background": true})",
        R"({"input": "x", "prompt": {"id": "p"}})",
        R"({"input": [{"type": "item_reference", "id": "msg_1"}]})",
        R"({"input": "x", "text": "json"})", R"({"input": "x", "text": {"format": "json"}})",
        R"({"input": "x", "reasoning": true})",
        R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})"}) {
    EXPECT_THROW(of_responses(bad), Error) << bad;
  }
}

TEST(ResponsesRequest, LogprobsAreAskedForByTheirNumberOrAmongWhatIsIncluded) {
  auto asked = [](const char* body) {
    const OrderedJson chat = parse_ordered(of_responses(body), "it");
    return chat.contains("logprobs") ? chat.at("top_logprobs") : OrderedJson();
  };
  EXPECT_EQ(asked(R"({"input": "x", "top_logprobs": 3})"), 3);
  EXPECT_EQ(asked(R"({"input": "x", "include": ["message.output_text.logprobs"]})"), 0);
  EXPECT_EQ(
      asked(R"({"input": "x", "top_logprobs": 0, "include": ["reasoning.encrypted_content"]})"),
      nullptr);
}

}  // namespace
}  // namespace sluice
