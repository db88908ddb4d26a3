#include "src/chat/answer_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/chat/answers.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using Format = test::AnswerFormat;

TEST(Answers, HermesAndQwen) {
  Format format("... <tool_call></tool_call> ...");
  EXPECT_EQ(
      format.of(
          "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
          "\"a}b\\\"\"}}\n"
          "</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"now\"}\n</tool_call>\n"),
      "Let me see.weather[{\"city\": \"a}b\\\"\"}]now[{}]");
  EXPECT_EQ(format.of("<think>\nHm\n</think>\n\n<tool_call>{\"name\":\"now\"}</tool_call> done \n"),
            "(Hm)now[{}]done \n");
  EXPECT_EQ(format.of("<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>"),
            "now[{\"a\": 1}]");
  EXPECT_EQ(format.of("<tool_call>{\"name\":\"now\",\"arguments\":null}</tool_call>"), "now[{}]");
  // Without an end, as a stop string or the limit of tokens leaves it.
  const std::string cut = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Pa";
  EXPECT_EQ(format.of(cut), cut);
}

TEST(Answers, ACutTagIsNoContent) {
  const std::string_view whole =
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (size_t cut = 0; cut < 13; ++cut) {
    EXPECT_EQ(Format("<tool_call>").of(whole.substr(0, whole.size() - cut)), "now[{}]");
  }
}

TEST(Answers, WhatIsNoCallIsContent) {
  Format format("<tool_call>");
  for (const char* text :
       {"<tool_call>nothing</tool_call>", "a <tool_call>{\"x\": 1}</tool_call> b ", "a < b <tool",
        " x\n", "<tool_call>", "<tool_call>{\"name\": 1}", "{\"name\": \"now\", \"arguments\": {}}",
        "<tool_call>[1, 2]"}) {
    EXPECT_EQ(format.of(text), text);
  }
  Format none("<tool_call>", "", Json());
  EXPECT_EQ(none.of("<tool_call>{\"name\": \"now\"}</tool_call>"),
            "<tool_call>{\"name\": \"now\"}</tool_call>");
}

TEST(Answers, ArgumentsBetweenTags) {
  Format format("<tool_call><function=...");
  EXPECT_EQ(
      format.of(
          "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n<parameter=code>\n[1]\n</parameter>\n</function>\n</"
          "tool_call>"),
      "I look.weather[{\"city\": \"New\\nYork\", \"days\": 3, \"code\": \"[1]\"}]");
  EXPECT_EQ(format.of("<tool_call>\n<function=now>\n</function>\n</tool_call>"), "now[{}]");
  EXPECT_EQ(format.of("<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n"),
            "weather[{\"days\": 3}]");
  EXPECT_EQ(format.of("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</"
                      "arg_value>\n<arg_key>days</arg_key>\n"
                      "<arg_value>x</arg_value>\n</tool_call>"),
            "weather[{\"city\": \"Rome\", \"days\": \"x\"}]");
}

TEST(Answers, Llama) {
  Format format("{\"name\": name, \"parameters\": {}}");
  EXPECT_EQ(format.of("{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}"),
            "weather[{\"city\": \"Rome\"}]");
  EXPECT_EQ(format.of("<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", "
                      "\"parameters\": {}}"),
            "now[{}]now[{}]");
  EXPECT_EQ(format.of("{\"name\": \"Bob\", \"age\": 3}"), "{\"name\": \"Bob\", \"age\": 3}");
  EXPECT_EQ(format.of("It is {\"name\": \"now\"}"), "It is {\"name\": \"now\"}");
}

TEST(Answers, Llama4) {
  Format format("<|python_start|><|python_end|>{\"name\": name, \"parameters\": {}}");
  const std::string call = "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}";
  const std::string called = "weather[{\"city\": \"Rome\"}]";
  EXPECT_EQ(format.of(call), called);
  EXPECT_EQ(format.of(call + call), called + called);
  EXPECT_EQ(format.of("<|python_start|>" + call + "<|python_end|>"), called);
  EXPECT_EQ(format.of("I look.<|python_start|>" + call + "<|python_end|>"), "I look." + called);
  EXPECT_EQ(format.of("<|python_start|>I look.<|python_end|>"),
            "<|python_start|>I look.<|python_end|>");
}

TEST(Answers, Mistral) {
  Format format("[TOOL_CALLS]");
  EXPECT_EQ(format.of("[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"[]\"}, "
                      "\"id\": \"abcdefghi\"},"
                      " {\"name\": \"now\", \"arguments\": {}}]"),
            "weather[{\"city\": \"[]\"}]now[{}]");
  EXPECT_EQ(
      format.of(
          "[TOOL_CALLS]weather[CALL_ID]12ab[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]now[ARGS]{}"),
      "weather[{\"city\": \"Rome\"}]now[{}]");
  EXPECT_EQ(format.of("Well.[TOOL_CALLS]weather{\"city\": \"Rome\"}"),
            "Well.weather[{\"city\": \"Rome\"}]");
}

TEST(Answers, DeepSeekAndKimi) {
  Format deepseek("<｜tool▁call▁begin｜>");
  EXPECT_EQ(deepseek.of("Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
                        "weather\n```json\n{\"city\": "
                        "\"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{"
                        "}<｜tool▁call▁end｜><"
                        "｜tool▁calls▁end｜>"),
            "Yes.weather[{\"city\": \"Rome\"}]now[{}]");
  Format kimi("<|tool_call_begin|>");
  EXPECT_EQ(kimi.of("<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_"
                    "argument_begin|>"
                    "{\"city\": 1}<|tool_call_end|><|tool_calls_section_end|>"),
            "weather[{\"city\": 1}]");
}

TEST(Answers, ValuesOfPython) {
  Format format("<tool_call><function=...", "", Json::parse(R"([{"type": "function", "function":
      {"name": "set", "parameters": {"type": "object", "properties": {
        "list": {"type": "array"}, "on": {"type": "boolean"}, "off": {"type": "boolean"}, "none": {"type": ["integer", "null"]},
        "text": {"type": "string"}}}}}])"));
  const auto call = [](std::string_view key, std::string_view value) {
    return fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value);
  };
  EXPECT_EQ(
      format.of("<tool_call>\n<function=set>\n" + call("on", "True") + call("off", "False") +
                call("none", "None") + call("list", "['a', 1, {'b': True}]") +
                call("text", "True") + "</function>\n</tool_call>"),
      "set[{\"on\": true, \"off\": false, \"none\": null, \"list\": [\"a\", 1, {\"b\": true}], "
      "\"text\": \"True\"}]");
}

// Schemas come from clients, and nothing has looked at them.
TEST(Answers, SchemasThatAreNone) {
  for (const char* schema : {R"({"properties": [{"type": "integer"}]})", R"({"properties": 1})",
                             R"([{"type": "integer"}])", "null"}) {
    Format format(
        "<tool_call><function=...", "",
        Json::array({{{"type", "function"},
                      {"function", {{"name", "f"}, {"parameters", Json::parse(schema)}}}}}));
    EXPECT_EQ(format.of("<tool_call>\n<function=f>\n<parameter=0>\n7\n</parameter>\n</function>\n"
                        "</tool_call>"),
              R"(f[{"0": "7"}])")
        << schema;
  }
}

TEST(Answers, ObjectsInOtherTags) {
  Format list("<TOOLCALL>");
  EXPECT_EQ(list.of("<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", "
                    "\"arguments\": {\"city\": \"]\"}}]</TOOLCALL>"),
            "now[{}]weather[{\"city\": \"]\"}]");
  Format lines("<tool_calls></tool_calls>");
  EXPECT_EQ(lines.of("Well.\n<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": "
                     "\"now\", \"arguments\": {\"a\": 1}}\n</tool_calls>"),
            "Well.now[{}]now[{\"a\": 1}]");
  Format seed("<seed:tool_call><function=");
  EXPECT_EQ(seed.of("<seed:think>\nHm\n</seed:think>\n<seed:tool_call>\n<function=weather>\n"
                    "<parameter=city>Rome</parameter>\n<parameter=days>3</parameter>\n</function>\n"
                    "</seed:tool_call>"),
            "(Hm)weather[{\"city\": \"Rome\", \"days\": 3}]");
  Format named("<|tools_prefix|>");
  EXPECT_EQ(named.of("<|inner_prefix|>Hm<|inner_suffix|><|tools_prefix|>[{\"now\": {}}, "
                     "{\"weather\": {\"city\": \"a}\\\"\"}}]<|tools_suffix|>"),
            "(Hm)now[{}]weather[{\"city\": \"a}\\\"\"}]");
}

TEST(Answers, Command) {
  const std::string answer =
      "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>It is \n late.<|END_RESPONSE|>";
  EXPECT_EQ(Format("<|START_ACTION|>").of(answer), "(Hm)It is \n late.");
  EXPECT_EQ(Format("<|START_ACTION|>", "", Json()).of(answer), "(Hm)It is \n late.");
  EXPECT_EQ(Format("<|START_ACTION|>")
                .of("<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
                    "\"parameters\": {\"city\": \"Rome\"}},\n    {\"tool_call_id\": \"1\", "
                    "\"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>"),
            "weather[{\"city\": \"Rome\"}]now[{}]");
  EXPECT_TRUE(AnswerParser::needs_special_tokens("<|END_THINKING|>", Json()));
}

TEST(Answers, Gemma) {
  Format format("<|tool_call>...<tool_call|>");
  EXPECT_EQ(
      format.of("<|channel>thought\nHm\n<channel|><|tool_call>call:weather{city:<|\"|>a}\"b<|\"|>,"
                "days:-1,list:[<|\"|>x<|\"|>,1.5],o:{<|\"|>k<|\"|>:{z:null}}}<tool_call|>"
                "<|tool_call>call:now{}<tool_call|><|tool_response>"),
      "(Hm)weather[{\"city\": \"a}\\\"b\", \"days\": -1, \"list\": [\"x\", 1.5], \"o\": "
      "{\"k\": {\"z\": null}}}]now[{}]");
  for (const char* text :
       {"<|tool_call>call:weather{city:<|\"|>Pa", "<|tool_call>weather{}<tool_call|>",
        "<|tool_call>call:now{a:b}<tool_call|>", "<|tool_call>"})
    EXPECT_EQ(format.of(text), text);
}

TEST(Answers, FunctionGemma) {
  Format format("<start_function_call>call:...<escape>");
  EXPECT_EQ(
      format.of("<start_function_call>call:weather{city:<escape>a}\"b<escape>,days:-1,"
                "list:[<escape>x<escape>,1.5]}<end_function_call>"
                "<start_function_call>call:now{}<end_function_call><start_function_response>"),
      "weather[{\"city\": \"a}\\\"b\", \"days\": -1, \"list\": [\"x\", 1.5]}]now[{}]");
  for (const char* text : {"<start_function_call>call:weather{city:<escape>Pa",
                           "<start_function_call>call:now{a:b}<end_function_call>"})
    EXPECT_EQ(format.of(text), text);
}

TEST(Answers, CallsOfPython) {
  Format format("List of tools: [");
  EXPECT_EQ(format.of("<|tool_call_start|>[weather(city='L\\'Aquila, \\u00e9', days=-1, on=True, "
                      "o={'k': [None, "
                      "(1, 2.5)], \"z\": \"\\n\"}), now()]<|tool_call_end|>Done."),
            "weather[{\"city\": \"L'Aquila, \u00e9\", \"days\": -1, \"on\": true, \"o\": {\"k\": "
            "[null, [1, "
            "2.5]], \"z\": \"\\n\"}}]now[{}]Done.");
  // An unknown escape stands for itself; two halves of a character are one, and one is none.
  EXPECT_EQ(
      format.of(
          R"(<|tool_call_start|>[now(a='C:\x \q \u12 \ud83d\ude00 \ud800')]<|tool_call_end|>)"),
      "now[{\"a\": \"C:\\\\x \\\\q \\\\u12 \xF0\x9F\x98\x80 \xEF\xBF\xBD\"}]");
  Format lines("<function_calls>");
  EXPECT_EQ(lines.of("<function_calls>\nnow()\nweather(city=\"a)\")\n</function_calls>"),
            "now[{}]weather[{\"city\": \"a)\"}]");
  for (const char* text : {"<|tool_call_start|>[now(]<|tool_call_end|>",
                           "<|tool_call_start|>[now(1)]", "<|tool_call_start|>[]<|tool_call_end|>",
                           "<|tool_call_start|>now(a='\\ud800'<|tool_call_end|>"})
    EXPECT_EQ(format.of(text), text);
  const std::string deep = "<|tool_call_start|>[now(a=" + std::string(100000, '[');
  EXPECT_EQ(format.of(deep.substr(0, 300)), deep.substr(0, 300));
}

TEST(Answers, Invokes) {
  Format format("<minimax:tool_call><invoke name=");
  EXPECT_EQ(
      format.of(
          "<think>\nHm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter "
          "name=\"city\">1 > 0</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n"
          "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"),
      "(Hm)weather[{\"city\": \"1 > 0\", \"days\": 3}]now[{}]");
  Format prefixed("\uFF5CDSML\uFF5C");
  EXPECT_EQ(
      prefixed.of(
          "<\uFF5CDSML\uFF5Ctool_calls>\n<\uFF5CDSML\uFF5Cinvoke name=\"weather\">\n"
          "<\uFF5CDSML\uFF5Cparameter name=\"city\" string=\"true\">3</\uFF5CDSML\uFF5Cparameter>\n"
          "<\uFF5CDSML\uFF5Cparameter name=\"x\" string=\"false\">[1]</\uFF5CDSML\uFF5Cparameter>\n"
          "</\uFF5CDSML\uFF5Cinvoke>\n</\uFF5CDSML\uFF5Ctool_calls>"),
      "weather[{\"city\": \"3\", \"x\": [1]}]");
  for (const char* text :
       {"<minimax:tool_call>\n<invoke>\n</invoke>\n</minimax:tool_call>",
        "<minimax:tool_call>now</minimax:tool_call>", "<minimax:tool_call><invoke name=\"now\">"})
    EXPECT_EQ(format.of(text), text);
}

TEST(Answers, Channels) {
  Format format("<|channel|>", "<|start|>user<|message|>Hi<|end|><|start|>assistant");
  EXPECT_EQ(format.of("<|channel|>analysis<|message|>Hm < "
                      "<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"),
            "(Hm < )Yes.");
  EXPECT_EQ(format.of("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>"
                      "commentary to=functions.weather "
                      "<|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>"),
            "(Hm)weather[{\"city\": \"Rome\"}]");
  EXPECT_EQ(format.of(" to=functions.now<|channel|>commentary json<|message|>{}"), "now[{}]");
  EXPECT_EQ(Format("<|channel|>", "<|start|>assistant<|channel|>final<|message|>").of("Yes."),
            "Yes.");
}

// Text that mixes the tags of all formats gives parts, whatever its order, and never ends in a
// loop.
TEST(Answers, AnyTextHasParts) {
  const std::vector<std::string> words{"<tool_call>",
                                       "</tool_call>",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       "\"name\"",
                                       ": ",
                                       "\"now\"",
                                       ", ",
                                       "\"arguments\"",
                                       "{}",
                                       "\\",
                                       "\"",
                                       "<function=",
                                       ">",
                                       "<parameter=",
                                       "x",
                                       "</parameter>",
                                       "</function>",
                                       "<arg_key>",
                                       "</arg_key>",
                                       "</arg_value>",
                                       "\n",
                                       "<think>",
                                       "</think>",
                                       "[TOOL_CALLS]",
                                       "[ARGS]",
                                       "1",
                                       "null",
                                       "<|python_tag|>"};
  test::Random random("words");
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (int64_t n = random.between(1, 30); n > 0; --n)
      text += words[static_cast<size_t>(random.between(0, std::ssize(words) - 1))];
    for (const char* chat_template :
         {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>",
          "<tool_call><function=", "<tool_call><arg_key>"}) {
      SCOPED_TRACE(text);
      Format(chat_template).of(text);
      Format(chat_template, "<think>", test::kParserTools, {.call_tag_is_token = true}).of(text);
    }
  }
}

TEST(AnswerParser, FurtherCallsAreLeftOutWhereThereIsOne) {
  const Json tools = Json::parse(R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])");
  AnswerParser parser("", "", tools, {.calls = &generic_call_form(), .one_call = true});
  const std::vector<AnswerPart> parts = parser.add(
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 1}}\n</tool_call>",
      true);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts[0].text, "f");
  EXPECT_EQ(parts[1].text, "{}");
}

}  // namespace
}  // namespace sluice
