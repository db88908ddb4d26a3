// Calls that models write with faults: they are the calls that were meant, or text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/json_call.h"
#include "src/chat/literals.h"
#include "tests/chat/answers.h"

namespace sluice {
namespace {

const Json kFaultTools = Json::parse(R"([{"type": "function", "function": {"name": "run",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"},
  "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "days": {"type": "integer"},
  "list": {"type": "array"}, "in": {"type": "object"}}}}},
  {"type": "function", "function": {"name": "num", "parameters": {"type": "object",
  "properties": {"n": {"type": "integer"}}}}}])");

// Writes a value as Python's repr does.
std::string python(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return value.dump();
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    text += (value.is_object() ? "'" + key + "': " : "") + python(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string keyed(const Json& value) {
  if (value.is_string()) return "<|\"|>" + value.get<std::string>() + "<|\"|>";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ",";
    text += (value.is_object() ? key + ":" : "") + keyed(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string each(const Json& arguments,
                 const std::function<std::string(const std::string&, const std::string&)>& write) {
  std::string text;
  for (const auto& [key, value] : arguments.items())
    text += write(key, value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

struct Form {
  std::string name;
  std::string chat_template;
  std::function<std::string(const Json& arguments)> written;
  bool json = false;  // of quotes and brackets
  std::string close = {};
  std::string lone = {};  // what it begins with, where its tag is left out
};

std::string object(const Json& a, const char* key = "arguments") {
  return "{\"name\": \"run\", \"" + std::string(key) + "\": " + a.dump() + "}";
}

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  auto add = [&](Form form) { forms.push_back(std::move(form)); };
  add({.name = "hermes",
       .chat_template = "<tool_call>",
       .written = [](const Json& a) { return "<tool_call>\n" + object(a) + "\n</tool_call>"; },
       .json = true,
       .close = "\n</tool_call>"});
  add({.name = "llama",
       .chat_template = "<|python_tag|>",
       .written = [](const Json& a) { return object(a, "parameters"); },
       .json = true});
  add({.name = "mistral list",
       .chat_template = "[TOOL_CALLS]",
       .written = [](const Json& a) { return "[TOOL_CALLS] [" + object(a) + "]"; },
       .json = true});
  add({.name = "mistral",
       .chat_template = "[TOOL_CALLS][ARGS]",
       .written = [](const Json& a) { return "[TOOL_CALLS]run[ARGS]" + a.dump(); },
       .json = true});
  add({.name = "granite",
       .chat_template = "<|tool_call|>",
       .written = [](const Json& a) { return "<|tool_call|>[" + object(a) + "]"; },
       .json = true});
  add({.name = "nemotron",
       .chat_template = "<TOOLCALL>",
       .written = [](const Json& a) { return "<TOOLCALL>[" + object(a) + "]</TOOLCALL>"; },
       .json = true,
       .close = "</TOOLCALL>"});
  add({.name = "deepseek",
       .chat_template = "<｜tool▁call▁begin｜>```json",
       .written =
           [](const Json& a) {
             return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n```"
                    "json\n" +
                    a.dump() + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
           },
       .json = true});
  add({.name = "kimi",
       .chat_template = "<|tool_call_begin|>",
       .written =
           [](const Json& a) {
             return "<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_call_"
                    "argument_begin|>" +
                    a.dump() + "<|tool_call_end|><|tool_calls_section_end|>";
           },
       .json = true});
  add({.name = "gpt-oss",
       .chat_template = "<|channel|>",
       .written =
           [](const Json& a) {
             return "<|channel|>commentary to=functions.run <|constrain|>json<|message|>" +
                    a.dump() + "<|call|>";
           },
       .json = true});
  add({.name = "lfm2",
       .chat_template = "<|tool_call_start|>",
       .written =
           [](const Json& a) {
             std::string text;
             for (const auto& [key, value] : a.items())
               text += (text.empty() ? "" : ", ") + key + "=" + python(value);
             return "<|tool_call_start|>[run(" + text + ")]<|tool_call_end|>";
           },
       .json = true,
       .close = "<|tool_call_end|>"});
  add({.name = "gemma",
       .chat_template = "<|tool_call><tool_call|>",
       .written = [](const Json& a) { return "<|tool_call>call:run" + keyed(a) + "<tool_call|>"; },
       .json = true,
       .close = "<tool_call|>"});
  add({.name = "qwen",
       .chat_template = "<tool_call><function=",
       .written =
           [](const Json& a) {
             return "<tool_call>\n<function=run>\n" +
                    each(a,
                         [](const std::string& k, const std::string& v) {
                           return "<parameter=" + k + ">\n" + v + "\n</parameter>\n";
                         }) +
                    "</function>\n</tool_call>";
           },
       .close = "\n</tool_call>",
       .lone = "<function=run>"});
  add({.name = "seed",
       .chat_template = "<seed:tool_call><function=",
       .written =
           [](const Json& a) {
             return "<seed:tool_call>\n<function=run>\n" +
                    each(a,
                         [](const std::string& k, const std::string& v) {
                           return "<parameter=" + k + ">" + v + "</parameter>\n";
                         }) +
                    "</function>\n</seed:tool_call>";
           },
       .close = "\n</seed:tool_call>",
       .lone = "<function=run>"});
  add({.name = "glm",
       .chat_template = "<tool_call><arg_key>",
       .written =
           [](const Json& a) {
             return "<tool_call>run\n" +
                    each(a,
                         [](const std::string& k, const std::string& v) {
                           return "<arg_key>" + k + "</arg_key>\n<arg_value>" + v +
                                  "</arg_value>\n";
                         }) +
                    "</tool_call>";
           },
       .close = "</tool_call>"});
  add({.name = "minimax",
       .chat_template = "<minimax:tool_call><invoke",
       .written =
           [](const Json& a) {
             return "<minimax:tool_call>\n<invoke name=\"run\">\n" +
                    each(a,
                         [](const std::string& k, const std::string& v) {
                           return "<parameter name=\"" + k + "\">" + v + "</parameter>\n";
                         }) +
                    "</invoke>\n</minimax:tool_call>";
           },
       .close = "\n</minimax:tool_call>",
       .lone = "<invoke name="});
  return forms;
}

const std::vector<Json>& all_arguments() {
  static const std::vector<Json> all{
      Json::parse(R"({"city": "Rome, {Lazio}", "days": 3})"),
      Json::parse(R"({"city": "a\nb\tc", "note": "90210"})"),
      Json::parse(R"({"city": "\nx\n", "list": [1, [2, "y"]], "note": "true"})"),
      Json::parse(
          R"({"city": "Rome", "in": {"a": 1, "b": {"c": 2}}, "list": [{"d": 1}, {"d": 2, "e": "f"}]})")};
  return all;
}

class FaultyCalls : public testing::TestWithParam<Form> {
 protected:
  // The arguments of the only call; null: there is none.
  std::optional<Json> call_of(const std::string& text, int times = 3) {
    std::optional<Json> found;
    content_.clear();
    for (const AnswerPart& part : format_.parts_of(text, false, times)) {
      if (part.kind == AnswerPart::Kind::content) content_ += part.text;
      if (part.kind == AnswerPart::Kind::call) {
        EXPECT_EQ(part.text, "run") << text;
        EXPECT_FALSE(found) << text;
      }
      if (part.kind == AnswerPart::Kind::arguments) found = Json::parse(part.text);
    }
    return found;
  }
  void expect_call(const std::string& text, const Json& arguments) {
    const std::optional<Json> found = call_of(text);
    EXPECT_TRUE(found && *found == arguments) << text << "\n"
                                              << (found ? found->dump() : "no call");
    EXPECT_EQ(content_, "") << text;
  }
  // The same call, or none.
  void expect_no_other(const std::string& text, const Json& arguments) {
    const std::optional<Json> found = call_of(text, 1);
    EXPECT_TRUE(!found || *found == arguments) << text << "\n" << found->dump();
    EXPECT_TRUE(found || !content_.empty()) << text;
  }

  Form form_ = GetParam();
  test::AnswerFormat format_{form_.chat_template, "", kFaultTools};
  std::string content_;
};

TEST_P(FaultyCalls, ArriveAsTheyAreMeant) {
  for (const Json& arguments : all_arguments()) {
    const std::string text = form_.written(arguments);
    expect_call(text, arguments);
    if (!form_.close.empty()) expect_call(text.substr(0, text.rfind(form_.close)), arguments);
    if (form_.lone.empty()) continue;
    const std::optional<Json> found =
        call_of("I will look.\n\n" + text.substr(text.find(form_.lone)));
    EXPECT_TRUE(found && *found == arguments) << text;
    EXPECT_EQ(content_, "I will look.");
  }
}

TEST_P(FaultyCalls, AreMendedWhereItIsCertain) {
  if (!form_.json) return;
  const Json arguments = Json::parse(R"({"city": "a\nb\tc", "note": "it", "list": [1, {"d": 2}]})");
  const std::string text = form_.written(arguments);
  std::string raw = text;
  for (const auto& [escape, c] : {std::pair("\\n", "\n"), std::pair("\\t", "\t")})
    while (raw.find(escape) != raw.npos) raw.replace(raw.find(escape), 2, c);
  expect_call(raw, arguments);
  const bool python = form_.name == "lfm2", gemma = form_.name == "gemma";
  const size_t it = text.rfind("it");
  const size_t last = text.find(python ? ')' : '}', it);
  if (!python && !gemma) {
    expect_call(text.substr(0, last) + text.substr(last + 1), arguments);
    expect_call(text.substr(0, last) + "}" + text.substr(last), arguments);
  }
  expect_call(text.substr(0, last) + "," + text.substr(last), arguments);
  std::string quotes = text;
  if (gemma) return;
  for (char& c : quotes)
    if (c == '"') c = '\'';
  expect_call(quotes, arguments);
}

// A bracket, a quote, a comma or a colon that is not there, or there twice.
TEST_P(FaultyCalls, AreNeverAnother) {
  if (!form_.json) return;
  for (const Json& arguments : all_arguments()) {
    const std::string text = form_.written(arguments);
    const size_t value = text.find(", {Lazio}"), end = value == text.npos ? 0 : value + 9;
    // Tags and names are not what this is about.
    const bool apart = form_.name == "gemma" || form_.name == "kimi";
    for (size_t at = text.find(apart ? "{" : "run"); at < text.size(); ++at) {
      if (at >= value && at < end) continue;
      if (std::string_view("{}[]()\"',:=").find(text[at]) == std::string_view::npos) continue;
      std::string less = text, more = text;
      less.erase(at, 1);
      more.insert(at, 1, text[at]);
      expect_no_other(less, arguments);
      expect_no_other(more, arguments);
    }
  }
}

TEST_P(FaultyCalls, AreTextWhereTheyAreCut) {
  for (const Json& arguments : all_arguments()) {
    const std::string text = form_.written(arguments);
    for (size_t size = 1; size < text.size(); ++size) {
      for (const AnswerPart& part :
           format_.parts_of(std::string_view(text).substr(0, size), true, 1)) {
        if (part.kind == AnswerPart::Kind::arguments) {
          EXPECT_EQ(Json::parse(part.text), arguments) << text.substr(0, size);
        }
      }
    }
  }
}

std::string name_of_form(const testing::TestParamInfo<Form>& of) {
  std::string name;
  for (char c : of.param.name) name += c == ' ' || c == '-' ? '_' : c;
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, FaultyCalls, testing::ValuesIn(all_forms()), name_of_form);

TEST(Faults, ValuesFollowTheSchema) {
  test::AnswerFormat format("<tool_call><function=", "",
                            Json::parse(R"([{"type": "function", "function":
    {"name": "f", "parameters": {"type": "object", "$defs": {"C": {"enum": ["1", "2"]}}, "properties": {
      "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "name": {"type": ["string", "null"]},
      "kind": {"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}, "old": {"type": "string", "nullable": true},
      "some": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "n": {"type": ["integer", "null"]}}}}}])"));
  const auto call = [](std::string_view key, std::string_view value) {
    return fmt::format(
        "<tool_call>\n<function=f>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>",
        key, value);
  };
  for (const char* key : {"zip", "name", "kind", "old"}) {
    for (const char* text : {"90210", "true", "1.0", "[1]", "\"q\"", " 7 "})
      EXPECT_EQ(format.of(call(key, text)),
                fmt::format("f[{{\"{}\": {}}}]", key, json_string(text)));
    EXPECT_EQ(format.of(call(key, "null")), fmt::format("f[{{\"{}\": null}}]", key));
  }
  EXPECT_EQ(format.of(call("some", "5")), "f[{\"some\": \"5\"}]");
  EXPECT_EQ(format.of(call("some", "[5]")), "f[{\"some\": [5]}]");
  EXPECT_EQ(format.of(call("n", "5")), "f[{\"n\": 5}]");
}

TEST(Faults, OfListsLeaveTheOthers) {
  test::AnswerFormat lfm2("<|tool_call_start|>", "", kFaultTools);
  EXPECT_EQ(lfm2.of("<|tool_call_start|>[run(city='x'), num(n=)]<|tool_call_end|>"),
            "run[{\"city\": \"x\"}]num(n=)");
  EXPECT_EQ(lfm2.of("<|tool_call_start|>[run(city=\"\"\"say \"hi\"\n\"\"\", note='a' \"b\" "
                    "r'\\n')]<|tool_call_end|>"),
            "run[{\"city\": \"say \\\"hi\\\"\\n\", \"note\": \"ab\\\\n\"}]");
  test::AnswerFormat mistral("[TOOL_CALLS]", "", kFaultTools);
  EXPECT_EQ(mistral.of("[TOOL_CALLS] [{\"name\": \"num\", \"arguments\": {\"n\": }}, {\"name\": "
                       "\"run\", \"arguments\": {\"city\": \"x\"}}]"),
            "run[{\"city\": \"x\"}]{\"name\": \"num\", \"arguments\": {\"n\": }}");
}

TEST(Faults, OfGemma) {
  test::AnswerFormat gemma("<|tool_call><tool_call|>", "", kFaultTools);
  EXPECT_EQ(
      gemma.of("<|tool_call>call:run{city:weather in Tokyo<|\"|>,note:<|\"|>p<|\"|>}<tool_call|>"),
      "run[{\"city\": \"weather in Tokyo\", \"note\": \"p\"}]");
  EXPECT_EQ(gemma.of("<|tool_call>call:run{city:<|\"|>a<|\"|>note:<|\"|>p<|\"|>}<tool_call|>"),
            "run[{\"city\": \"a\", \"note\": \"p\"}]");
  for (const char* end : {"", "}}"})
    EXPECT_EQ(
        gemma.of("<|tool_call>call:run{city:<|\"|>a<|\"|>" + std::string(end) + "<tool_call|>"),
        "run[{\"city\": \"a\"}]");
  for (const char* text : {"<|tool_call>call:run{city:x,note:<|\"|>p<|\"|>}<tool_call|>",
                           "<|tool_call>call:run{city:x, note:y<|\"|>}<tool_call|>"})
    EXPECT_EQ(gemma.of(text), text);
}

TEST(Faults, WithoutTheirTagAreOfKnownTools) {
  test::AnswerFormat qwen("<tool_call><function=", "", kFaultTools);
  for (const char* text : {"See <function=other>\n</function>.", "a <function= b",
                           "<function=run\nx>", "<function=run"})
    EXPECT_EQ(qwen.of(text), text);
  test::AnswerFormat hermes("<tool_call>", "", kFaultTools);
  EXPECT_EQ(hermes.of("<function=run>\n</function>"), "<function=run>\n</function>");
}

TEST(Faults, WithoutArgumentsAreNone) {
  test::AnswerFormat hermes("<tool_call>", "", kFaultTools);
  for (const char* text :
       {"<tool_call>{\"name\": \"run\", \"city\": \"x\"}</tool_call>",
        "<tool_call>{\"name\": \"run\", \"arguments\": \"x\"}</tool_call>",
        "<tool_call>{\"name\": \"run\", \"arguments\": {\"city\": \"say \"x\"\"}}</tool_call>"})
    EXPECT_EQ(hermes.of(text), text);
  test::AnswerFormat qwen("<tool_call><function=", "", kFaultTools);
  EXPECT_EQ(qwen.of("<tool_call>\n<function=run>\nx\n</function>\n</tool_call>"),
            "<tool_call>\n<function=run>\nx\n</function>\n</tool_call>");
}

TEST(Faults, ObjectsOfTheApis) {
  const std::string_view called = "run[{\"city\": \"x\"}]";
  for (
      const char* object :
      {R"({"type": "function", "function": {"name": "run", "arguments": {"city": "x"}}})",
       R"({"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{\"city\": \"x\"}"}})",
       R"({"function": {"name": "run", "parameters": {"city": "x"}}})",
       R"({"type": "function", "function": "run", "parameters": {"city": "x"}})",
       R"({"function": "run", "arguments": {"city": "x"}})"}) {
    EXPECT_EQ(test::AnswerFormat("<tool_call>", "", kFaultTools)
                  .of("<tool_call>" + std::string(object) + "</tool_call>")
                  .starts_with("run[{"),
              true)
        << object;
    test::AnswerFormat llama("<|python_tag|>", "", kFaultTools);
    EXPECT_EQ(Json::parse(llama.parts_of(object).at(1).text).at("city"), "x") << object;
    test::AnswerFormat mistral("[TOOL_CALLS]", "", kFaultTools);
    EXPECT_EQ(mistral.parts_of("[TOOL_CALLS] [" + std::string(object) + "]").at(0).text, "run");
  }
  const auto call =
      read_json_call(R"({"id": "call00001", "function": {"name": "run", "arguments": {}}})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->id, "call00001");
  test::AnswerFormat hermes("<tool_call>", "", kFaultTools);
  EXPECT_EQ(hermes.of("<tool_call>{\"function\": \"run\", \"arguments\": {\"city\": \"x\"}}"),
            called);
  const char* none = "<tool_call>{\"function\": {\"name\": \"run\"}, \"city\": 1}</tool_call>";
  EXPECT_EQ(hermes.of(none), none);
}

TEST(Faults, OfInvokes) {
  test::AnswerFormat format("<minimax:tool_call><invoke", "", kFaultTools);
  const auto call = [](std::string_view arguments) {
    return fmt::format(
        "<minimax:tool_call>\n<invoke name=\"run\">\n{}</invoke>\n</minimax:tool_call>", arguments);
  };
  const std::string_view called = "run[{\"city\": \"x\", \"days\": 3}]";
  for (const char* arguments :
       {"<parameter name='city'>x</parameter>\n<parameter name=days>3</parameter>\n",
        "<parameter name=\"city\">x\n<parameter name=\"days\">3</parameter>\n",
        "<parameter name=\"city\">x</parameter>\n<parameter name=\"days\">3\n"})
    EXPECT_EQ(format.of(call(arguments)), called) << arguments;
  EXPECT_EQ(format.of(call("<parameter name=\"city\"><parameter name=\"a\"></parameter>\n")),
            "run[{\"city\": \"<parameter name=\\\"a\\\">\"}]");
}

TEST(Faults, AnswersInNoChannel) {
  test::AnswerFormat format("<|channel|>", "<|start|>assistant", kFaultTools);
  EXPECT_EQ(format.of("Hello there."), "Hello there.");
  EXPECT_EQ(format.of("Hello there.<|return|>"), "Hello there.");
  EXPECT_EQ(format.of("<|channel|>final<|message|>Hi<|end|><|start|>assistant"), "Hi");
  for (const char* header : {"<|channel|>final", " to=functions.run", "<|channel|>fin"})
    EXPECT_EQ(format.of(header, true), "");
}

TEST(Faults, BackslashesThatAreNone) {
  test::AnswerFormat hermes("<tool_call>", "", kFaultTools);
  EXPECT_EQ(hermes.of(R"(<tool_call>{"name": "run", "arguments": {"city": "\d+\."}}</tool_call>)"),
            R"(run[{"city": "\\d+\\."}])");
  const char* unclear =
      R"(<tool_call>{"name": "run", "arguments": {"city": "C:\Users\new"}}</tool_call>)";
  EXPECT_EQ(hermes.of(unclear), unclear);
}

TEST(Faults, HaveTheirIds) {
  test::AnswerFormat kimi("<|tool_call_begin|>", "", kFaultTools);
  const auto id = [](const std::vector<AnswerPart>& parts) { return parts.at(0).id; };
  EXPECT_EQ(id(kimi.parts_of("<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_"
                             "call_argument_begin|>{}"
                             "<|tool_call_end|><|tool_calls_section_end|>")),
            "functions.run:0");
  test::AnswerFormat mistral("[TOOL_CALLS]", "", kFaultTools);
  EXPECT_EQ(id(mistral.parts_of("[TOOL_CALLS]run[CALL_ID]abcdefghi[ARGS]{}")), "abcdefghi");
  EXPECT_EQ(id(mistral.parts_of(
                "[TOOL_CALLS] [{\"name\": \"run\", \"arguments\": {}, \"id\": \"abcdefghi\"}]")),
            "abcdefghi");
}

TEST(Faults, EndThoughts) {
  const std::string call =
      "<tool_call>\n<function=run>\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>";
  test::AnswerFormat format("<tool_call><function=", "<think>\n", kFaultTools,
                            {.call_tag_is_token = true});
  EXPECT_EQ(format.of("I should look.\n" + call), "(I should look.\n)run[{\"city\": \"x\"}]");
  EXPECT_EQ(format.of("Hm " + call + "\n</think>\n\nSo."), "(Hm )run[{\"city\": \"x\"}]So.");
  EXPECT_EQ(format.of("A <tool_call> is one. " + call),
            "(A <tool_call> is one. )run[{\"city\": \"x\"}]");
  EXPECT_EQ(format.of("A <tool_call> is one.\n</think>\n\n" + call),
            "(A <tool_call> is one.)run[{\"city\": \"x\"}]");
  EXPECT_EQ(format.of("<think>\nHm <tool_call>"), "(Hm <tool_call>)");
  test::AnswerFormat text("<tool_call><function=", "<think>\n", kFaultTools);
  EXPECT_EQ(text.of("Hm " + call), "(Hm " + call + ")");
}

TEST(Faults, ThoughtsWithoutTheirFirstTag) {
  test::AnswerFormat said("", "", Json(), {.begins_in_thoughts = true});
  EXPECT_EQ(said.of("I think so.</think>Hi"), "(I think so.)Hi");
  EXPECT_EQ(said.of("<think>\nI think so.\n</think>\n\nHi"), "(I think so.)Hi");
  test::AnswerFormat r1("{% set content = content.split('</think>')[-1] %}", "", Json());
  EXPECT_EQ(r1.of("I think so.</think>Hi"), "(I think so.)Hi");
  EXPECT_EQ(test::AnswerFormat("<think></think>", "", Json()).of("so.</think>Hi"), "so.</think>Hi");
}

}  // namespace
}  // namespace sluice
