// Grammars of answers: each text that is allowed is one that the parser of answers takes apart as
// it was meant.
#include "src/chat/answer_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/chat/answer_parser.h"
#include "src/chat/chat_request.h"
#include "src/chat/chat_template.h"
#include "tests/grammar/matching.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using Kind = AnswerPart::Kind;
using Ordered = nlohmann::ordered_json;

const char* const kWeather = R"({"type": "object", "properties": {
  "city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]},
  "days": {"type": "integer", "minimum": 1, "maximum": 20}, "more": {"type": ["array", "null"],
  "items": {"type": "boolean"}, "maxItems": 2}}, "required": ["city", "days"],
  "additionalProperties": false})";
const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "weather",
  "parameters": )" + std::string(kWeather) +
                                R"(}}, {"type": "function", "function": {"name": "now"}}])");

struct Known {
  const char* name;
  const char* chat_template;
  const char* answer;  // a call of each tool
};
const Known kForms[] = {
    {"hermes", "<tool_call>",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
    {"qwen 3.5", "<tool_call><function=",
     "<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
     "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=now>\n</function>\n</tool_call>"},
    {"glm", "<tool_call><arg_key>",
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</"
     "tool_call>"},
    {"mistral", "[TOOL_CALLS]",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}, "
     "{\"name\": \"now\", \"arguments\": {}}]"},
    {"mistral 11", "[TOOL_CALLS][ARGS]",
     "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"days\": 2}[TOOL_CALLS]now[ARGS]{}"},
    {"mistral 13", "[TOOL_CALLS][CALL_ID][ARGS]",
     "[TOOL_CALLS]weather[CALL_ID]abcdefgh1[ARGS]{\"city\": \"Rome\", \"days\": 2}"
     "[TOOL_CALLS]now[CALL_ID]abcdefgh2[ARGS]{}"},
    {"phi", "<|tool_call|><|/tool_call|>",
     "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}, "
     "{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>"},
    {"kimi", "<|tool_call_begin|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|"
     ">"
     "{\"city\": \"Rome\", \"days\": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
    {"deepseek 3", "<｜tool▁call▁begin｜>```json",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
     "{\"city\": \"Rome\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
     "<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek 3.1", "<｜tool▁call▁begin｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\", "
     "\"days\": 2}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>"},
    {"llama", "\"parameters\": ",
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 2}}; "
     "{\"name\": \"now\", \"parameters\": {}}"}};
const Known kHarmony{"harmony", "<|channel|>",
                     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
                     "{\"city\": \"Rome\", \"days\": 2}"};

std::vector<CallableTool> tools(bool strict = true) {
  return {{.name = "weather", .schema = Ordered::parse(kWeather), .strict = strict},
          {.name = "now", .schema = {}, .strict = strict}};
}

class Held {
 public:
  // `special`: <|...|> are special tokens.
  Held(std::string chat_template, const AnswerRules& rules, std::string prompt = "",
       bool special = false)
      : template_(std::move(chat_template)), prompt_(std::move(prompt)) {
    const Ordered all = answer_composition(template_, prompt_, rules, "test");
    const auto is_special = [&](std::string_view token) {
      return special && token.starts_with("<|");
    };
    grammar_ = grammar::compile({grammar::SourceKind::composition, all.dump()}, "test", is_special);
  }

  bool allows(std::string_view text) const { return grammar::matches(*grammar_, text); }
  // The calls that the parser finds: (name, arguments); a text has no name.
  std::vector<std::pair<std::string, std::string>> parsed(std::string_view text) const {
    std::vector<std::pair<std::string, std::string>> calls;
    for (const AnswerPart& part : AnswerParser(template_, prompt_, kTools).add(text, true)) {
      if (part.kind == Kind::call) {
        calls.emplace_back(part.text, "");
      } else if (part.kind == Kind::arguments) {
        calls.back().second += part.text;
      } else if (part.kind == Kind::content) {
        calls.emplace_back("", part.text);
      }
    }
    return calls;
  }

  // Some text that is allowed; nothing where none was found in `most` bytes.
  std::optional<std::string> some(test::Random& random, int most = 1500) const {
    constexpr std::string_view kOften = "\"}]>\n/<| ;{[:,aFC1truefalsn";
    constexpr std::string_view kCloses[] = {"\n</parameter>\n", "</arg_value>\n", "\xFF<|end|>"};
    grammar::StepBudget budget(2'000'000'000);
    auto state = grammar::State::start(*grammar_, budget);
    std::string text;
    for (int i = 0; i < most; ++i) {
      if (state.can_end() && (random.between(0, 2) == 0 || state.only_ends())) return text;
      if (random.between(0, 9) == 0) {  // which nobody writes by chance
        const std::string_view close = kCloses[static_cast<size_t>(random.between(0, 2))];
        auto closed = state.next(*grammar_, close, budget);
        if (!closed.dead()) {
          text += close;
          state = std::move(closed);
          continue;
        }
      }
      std::vector<std::pair<char, grammar::State>> possible;
      for (int b = 1; b < 127; ++b) {
        const bool often = kOften.find(static_cast<char>(b)) != kOften.npos;
        if (!often && b % 13 != i % 13) continue;
        auto next = state.next(*grammar_, static_cast<uint8_t>(b), budget);
        if (!next.dead()) possible.emplace_back(static_cast<char>(b), std::move(next));
      }
      for (int b = 1; possible.empty() && b < 256; ++b) {
        auto next = state.next(*grammar_, static_cast<uint8_t>(b), budget);
        if (!next.dead()) possible.emplace_back(static_cast<char>(b), std::move(next));
      }
      if (possible.empty()) return std::nullopt;
      auto& [byte, next] =
          possible[static_cast<size_t>(random.between(0, std::ssize(possible) - 1))];
      text += byte;
      state = std::move(next);
    }
    return std::nullopt;
  }

 private:
  std::string template_, prompt_;
  std::shared_ptr<const grammar::Grammar> grammar_;
};

TEST(AnswerGrammar, CallsAreWrittenAsTheModelDoes) {
  for (const Known& form : kForms) {
    SCOPED_TRACE(form.name);
    const Held both(form.chat_template, {.tools = tools(), .must_call = true});
    EXPECT_TRUE(both.allows(form.answer));
    EXPECT_FALSE(both.allows(std::string("x") + form.answer));
    EXPECT_FALSE(both.allows(std::string(form.answer) + "x"));
    EXPECT_FALSE(both.allows(""));
    std::string wrong = form.answer;
    wrong.replace(wrong.find("weather"), 7, "whether");
    EXPECT_FALSE(both.allows(wrong));
    EXPECT_FALSE(Held(form.chat_template, {.tools = tools(), .must_call = true, .one_call = true})
                     .allows(form.answer));
  }
  EXPECT_TRUE(Held(kHarmony.chat_template, {.tools = tools(), .must_call = true})
                  .allows("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant" +
                          std::string(kHarmony.answer)));
}

TEST(AnswerGrammar, TheParserFindsWhatIsAllowed) {
  test::Random random("answers");
  std::vector<Known> forms(std::begin(kForms), std::end(kForms));
  forms.push_back(kHarmony);
  for (const Known& form : forms) {
    SCOPED_TRACE(form.name);
    const Held held(form.chat_template, {.tools = tools(), .must_call = true}, "",
                    form.chat_template == kHarmony.chat_template);
    int found = 0;
    for (int i = 0; i < 12; ++i) {
      std::optional<std::string> text = held.some(random);
      if (!text) continue;
      std::erase(*text, '\xFF');
      ++found;
      const auto calls = held.parsed(*text);
      EXPECT_FALSE(calls.empty()) << *text;
      for (const auto& [name, arguments] : calls) {
        const Json json = Json::parse(arguments, nullptr, false);
        ASSERT_TRUE(json.is_object()) << *text << "\n" << arguments;
        if (name == "now") {
          EXPECT_TRUE(json.empty()) << *text;
          continue;
        }
        EXPECT_EQ(name, "weather") << *text;
        EXPECT_TRUE(json.at("city").is_string()) << *text;
        EXPECT_TRUE(json.at("days") >= 1 && json.at("days") <= 20) << *text;
        const Json unit = json.value("unit", Json("C"));
        EXPECT_TRUE(unit == "C" || unit == "F") << *text;
        EXPECT_FALSE(json.value("more", Json()).is_string()) << *text;
      }
    }
    EXPECT_GT(found, 0);
  }
}

// Renders a conversation, as a model's own template writes it.
std::string rendered(const std::string& chat_template, Ordered messages, bool prompt) {
  ChatTemplate model({}, "template", chat_template);
  jinja::Context context;
  const Ordered request{{"messages", std::move(messages)},
                        {"tools", Ordered::parse(kTools.dump())},
                        {"variables", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}}};
  set_chat(context, jinja::read_json(context.meter(), request.dump(), "request"), prompt,
           "request");
  complete_chat(context);
  return model.render(context);
}

TEST(AnswerGrammar, TemplatesWriteCallsThatAreAllowed) {
  const Ordered user{{"role", "user"}, {"content", "Where is it warm?"}};
  const Ordered call = Ordered::parse(R"({"id": "abcdefgh1", "type": "function", "function":
      {"name": "weather", "arguments": {"city": "Rome", "days": 2}}})");
  const Ordered answer{
      {"role", "assistant"}, {"content", ""}, {"tool_calls", Ordered::array({call})}};
  for (const char* name : {"llama3_1", "mistral_v3_tools", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string source = test::read_file(test::source_dir() / "tests/data/jinja/chats" /
                                               name / "chat_template.jinja");
    const std::string prompt = rendered(source, Ordered::array({user}), true);
    std::string all = rendered(source, Ordered::array({user, answer}), false);
    ASSERT_TRUE(all.starts_with(prompt)) << prompt << "\n" << all;
    all.erase(0, prompt.size());
    for (std::string_view left_out :
         {", \"id\": \"abcdefgh1\"", "<|im_end|>\n", "</s>", "<|eot_id|>"})
      if (const size_t at = all.find(left_out); at != all.npos) all.erase(at, left_out.size());
    EXPECT_TRUE(Held(source, {.tools = tools(), .must_call = true}, prompt).allows(all)) << all;
  }
}

TEST(AnswerGrammar, TextsAreFreeUntilACallBegins) {
  for (const Known& form : kForms) {
    SCOPED_TRACE(form.name);
    const Held held(form.chat_template, {.tools = tools()});
    const bool bare = std::string_view(form.name) == "llama";
    EXPECT_TRUE(held.allows("Just a text, a < b [x] {"));
    EXPECT_TRUE(held.allows(""));
    EXPECT_TRUE(held.allows((bare ? "" : "I look. ") + std::string(form.answer)));
    std::string wrong = form.answer;
    wrong.replace(wrong.find("days"), 4, "nays");
    EXPECT_FALSE(held.allows(wrong));
  }
}

TEST(AnswerGrammar, ThoughtsComeFirst) {
  const AnswerRules rules{.tools = {}, .text = Ordered{{"source", "json_object"}, {"text", ""}}};
  const Held may("<think></think>", rules, "assistant\n");
  for (const char* good : {"{}", "<think>\nHm {\n</think>\n\n{\"a\": 1}", "<think></think>{}"})
    EXPECT_TRUE(may.allows(good)) << good;
  for (const char* bad : {"", "Hm</think>{}", "<think>Hm", "<think>Hm</think>", "x{}"})
    EXPECT_FALSE(may.allows(bad)) << bad;
  const Held begun("<think></think>", rules, "assistant\n<think>\n");
  EXPECT_TRUE(begun.allows("Hm < {} </think>\n\n{}"));
  EXPECT_FALSE(begun.allows("{}"));
  const Held ended("<think></think>", rules, "assistant\n<think>\n\n</think>\n\n");
  EXPECT_TRUE(ended.allows("{}"));
  EXPECT_FALSE(ended.allows("<think></think>{}"));
  const Held word("<|channel>thought <channel|>", rules, "");
  EXPECT_TRUE(word.allows("<|channel>thought\nHm<channel|>{}"));
  EXPECT_FALSE(word.allows("<|channel>\nHm<channel|>{}"));
  const Held never("no thoughts", rules, "");
  EXPECT_TRUE(never.allows("{}"));
  EXPECT_FALSE(never.allows("<think></think>{}"));
  const Held harmony("<|channel|>", rules, "<|start|>assistant");
  EXPECT_TRUE(
      harmony.allows("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
                     "<|channel|>final<|message|>{}"));
  EXPECT_TRUE(harmony.allows("<|channel|>final<|message|>{}"));
  EXPECT_FALSE(harmony.allows("{}"));
}

TEST(AnswerGrammar, ATextOfAFormOrACall) {
  const Held held("<tool_call>",
                  {.tools = tools(), .text = Ordered{{"source", "json_object"}, {"text", ""}}});
  EXPECT_TRUE(held.allows("{\"a\": 1}"));
  EXPECT_TRUE(held.allows(kForms[0].answer));
  EXPECT_FALSE(held.allows("text"));
}

TEST(AnswerGrammar, ToolsThatAreNotStrictMayBeLoose) {
  const Ordered odd = Ordered::parse(R"({"type": "object", "not": {}})");
  const auto one = [&](bool strict) {
    return AnswerRules{.tools = {{.name = "f", .schema = odd, .strict = strict}},
                       .must_call = true};
  };
  EXPECT_TRUE(
      Held("<tool_call>", one(false))
          .allows("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1]}}\n</tool_call>"));
  EXPECT_THROW(Held("<tool_call>", one(true)), Error);
}

// A template whose arguments are written between tags, and a call there.
Held held_between_tags(const std::string& schema, bool strict) {
  return Held("<tool_call><function=",
              {.tools = {{.name = "f", .schema = Ordered::parse(schema), .strict = strict}},
               .must_call = true});
}
std::string call_between_tags(const std::string& value) {
  return "<tool_call>\n<function=f>\n<parameter=x>\n" + value +
         "\n</parameter>\n</function>\n</tool_call>";
}

// Arguments that are written between tags may each be loose by themselves.
TEST(AnswerGrammar, ArgumentsBetweenTags) {
  const auto& held = held_between_tags;
  const auto& call = call_between_tags;
  const Held odd = held(R"({"properties": {"x": {"type": "array", "uniqueItems": true}}})", false);
  for (const char* good : {"5", "\"a\"", "[1]", "{}"}) EXPECT_TRUE(odd.allows(call(good))) << good;
  EXPECT_FALSE(odd.allows(call("{")));

  const Held referred = held(
      R"({"$defs": {"n": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/n"}},
          "required": ["x"]})",
      true);
  EXPECT_TRUE(referred.allows(call("5")));
  EXPECT_FALSE(referred.allows(call("5.5")));

  const Held fixed = held(R"({"properties": {"x": {"type": "string", "const": "a"}, "y": false},
                              "required": ["x"]})",
                          true);
  EXPECT_TRUE(fixed.allows(call("a")));
  EXPECT_FALSE(fixed.allows(call("b")));

  // A string that may be null is as it stands, and null is null.
  const Held optional = held(
      R"({"$defs": {"C": {"enum": ["a", "b"]}}, "properties": {
          "x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["x"]})",
      true);
  for (const char* good : {"90210", "null", "a\nb"}) EXPECT_TRUE(optional.allows(call(good)));
  const Held listed = held(
      R"({"$defs": {"C": {"enum": ["a", "b"]}}, "properties": {
          "x": {"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}}, "required": ["x"]})",
      true);
  for (const char* good : {"a", "null"}) EXPECT_TRUE(listed.allows(call(good)));
  for (const char* bad : {"c", "\"a\""}) EXPECT_FALSE(listed.allows(call(bad)));

  for (const char* no : {R"({"not": {}})", R"({"minProperties": 1})", R"({"type": "array"})",
                         R"({"properties": {}, "required": ["z"]})",
                         R"({"properties": {"x": {"type": "string", "pattern": "(a)\\1"}}})"})
    EXPECT_THROW(held(no, true), Error) << no;
}

// Rules of a string between tags hold as they do in JSON, whether or not they must.
TEST(AnswerGrammar, RulesOfStringsBetweenTags) {
  struct Rule {
    const char* schema;
    std::vector<const char*> good, bad;
  };
  for (const Rule& rule : std::initializer_list<Rule>{
           {R"("type": "string", "format": "date")", {"2024-02-29"}, {"2023-02-29", "today", ""}},
           {R"("type": "string", "format": "uuid")",
            {"123e4567-e89b-12d3-a456-426614174000"},
            {"123e4567"}},
           {R"("pattern": "^[a-z\"é]+$")", {"aé\"b"}, {"a1", "\"a1\""}},
           {R"("type": "string", "allOf": [{"minLength": 2}], "maxLength": 3)",
            {"ab", "a\nb", "äöü"},
            {"a", "abcd"}},
           {R"("type": "string", "minLength": 1)", {"<parameter>"}, {"", "a</parameter>"}},
           {R"("anyOf": [{"type": "string", "format": "email"}, {"type": "null"}])",
            {"a@b.org", "null"},
            {"nobody"}},
           {R"("type": ["string", "null"], "not": {"enum": ["a"]})", {"b", "null"}, {"a"}}}) {
    for (const bool strict : {false, true}) {
      const Held ruled = held_between_tags(
          R"({"required": ["x"], "properties": {"x": {)" + std::string(rule.schema) + "}}}",
          strict);
      for (const char* good : rule.good) EXPECT_TRUE(ruled.allows(call_between_tags(good))) << good;
      for (const char* bad : rule.bad) EXPECT_FALSE(ruled.allows(call_between_tags(bad))) << bad;
    }
  }
}

TEST(AnswerGrammar, WhatCannotBeHeldIsRefused) {
  auto why = [](std::string_view chat_template, const CallableTool& tool) -> std::string {
    try {
      answer_composition(chat_template, "", {.tools = {tool}, .must_call = true}, "test");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      return e.what();
    }
    return {};
  };
  EXPECT_NE(why("an unknown one", {.name = "f", .schema = {}}).find("no known tool-call format"),
            std::string::npos);
  EXPECT_NE(why("<tool_call>", {.name = "a b", .schema = {}}).find("letters"), std::string::npos);
  EXPECT_NE(why("<tool_call>", {.name = "f", .schema = 5}).find("JSON schema"), std::string::npos);
  EXPECT_NE(
      why("<tool_call><function=", {.name = "f", .schema = Ordered::parse(R"({"anyOf": [{}]})")})
          .find("between tags"),
      std::string::npos);
}

}  // namespace
}  // namespace sluice
