// Chats: messages to what templates get, and a model's text to the parts of an answer.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/chat/api_messages.h"
#include "src/chat/chat_request.h"
#include "src/serve/apis/answer.h"
#include "src/serve/apis/chat_completion.h"
#include "tests/text/small_tokenizer.h"

namespace sluice {
namespace {

// A template that shows tools and their calls, as Hermes' does.
constexpr const char* kShowsTools =
    "{% if tools %}{{ tools | tojson }}<tool_call>{{ messages }}{% endif %}";

std::string rendered(const std::string& body, const std::string& source) {
  ChatTemplate chat_template({}, "template", source);
  return render_chat(parse_ordered(body, "the request"), "the request", chat_template,
                     [](uint64_t) {});
}

TEST(ChatRequest, ContentsAreTexts) {
  const std::string source =
      std::string("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}") + kShowsTools;
  EXPECT_EQ(rendered(R"({"messages": [{"role": "user", "content": "a"},
                          {"role": "user", "content": [{"type": "text", "text": "b"},
                                                       {"type": "text", "text": "c"}]},
                          {"role": "assistant", "content": null}, {"role": "tool"}]})",
                     source),
            "user=a;user=b\nc;assistant=;tool=;");
  for (const char* bad :
       {R"({"messages": []})", R"({"messages": "x"})", R"({"messages": ["x"]})",
        R"({"messages": [{"content": "x"}]})", R"({"messages": [{"role": "user", "content": 1}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", R"({})"}) {
    EXPECT_THROW(rendered(bad, source), Error) << bad;
  }
}

TEST(ChatRequest, WhatIsNullIsNotThere) {
  EXPECT_EQ(rendered(R"({"messages": [{"role": "assistant", "content": "a", "name": null,
                           "tool_calls": null, "function_call": null, "refusal": null, "audio": null},
                         {"role": "assistant", "tool_calls": [], "name": "n"}]})",
                     "{% for m in messages %}{{ m | list | sort | join(' ') }};{% endfor %}"),
            "content role;content name role;");
}

TEST(ChatRequest, ALastMessageCanBeContinued) {
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  auto ask = [&](const std::string& content, const std::string& more) {
    return rendered(R"({"messages": [{"role": "user", "content": "a b"},
      {"role": "assistant", "content": )" +
                        Json(content).dump() + "}]" + more + "}",
                    source);
  };
  EXPECT_EQ(ask("a", R"(, "continue_final_message": true)"), "[user]a b</s>[assistant]a");
  EXPECT_EQ(ask(" a ", R"(, "continue_final_message": true)"), "[user]a b</s>[assistant]a");
  EXPECT_EQ(ask("a", R"(, "add_generation_prompt": null, "continue_final_message": null)"),
            "[user]a b</s>[assistant]a</s>[assistant]");
  EXPECT_EQ(ask("a", R"(, "add_generation_prompt": false)"), "[user]a b</s>[assistant]a</s>");
  for (const char* content : {"", " "})
    EXPECT_THROW(ask(content, R"(, "continue_final_message": true)"), Error);
  EXPECT_THROW(ask("a", R"(, "continue_final_message": true, "add_generation_prompt": true)"),
               Error);
  EXPECT_THROW(rendered(R"({"messages": [{"role": "user", "content": "a"}],
    "continue_final_message": true})",
                        source),
               Error);
}

TEST(ChatRequest, TheDeveloperIsTheSystemWhereTheTemplateKnowsNone) {
  const std::string body =
      R"({"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]})";
  const std::string source = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
  EXPECT_EQ(rendered(body, source), "system=a;user=b;");
  EXPECT_EQ(rendered(body, source + "{# or developer #}"), "developer=a;user=b;");
}

TEST(ChatRequest, CallsHaveIdsThatTheTemplateTakes) {
  const std::string body = R"({"messages": [{"role": "assistant", "tool_calls": [
      {"id": "call_0123456789", "function": {"name": "f", "arguments": "{}"}},
      {"id": "abcdefghi", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "call_0123456789", "content": "1"},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"}]})";
  const std::string source =
      std::string(
          "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}"
          "{{ m.tool_call_id }} {% endfor %}") +
      kShowsTools;
  EXPECT_EQ(rendered(body, source), "call_0123456789 abcdefghi  call_0123456789 abcdefghi ");
  const std::string ids = rendered(body, source + "{% if source|length != 9 %}{% endif %}");
  ASSERT_EQ(ids.size(), 4 * 10 + 1) << ids;
  EXPECT_EQ(ids.substr(0, 20), ids.substr(21)) << "an answer names no call";
  EXPECT_EQ(ids.substr(10, 10), "abcdefghi ");
  EXPECT_EQ(ids.find('_'), std::string::npos);
}

TEST(ChatRequest, ArgumentsOfCallsAreObjects) {
  const std::string source =
      std::string(
          "{% for m in messages %}{% for c in m.tool_calls or [] %}"
          "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
          "{% endfor %}") +
      kShowsTools;
  auto call = [&](const std::string& arguments) {
    return rendered(R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "function",
      "function": {"name": "f", "arguments": )" +
                        Json(arguments).dump() + "}}]}]}",
                    source);
  };
  EXPECT_EQ(call(R"({"b": 1, "a": [2]})"), R"(f{"b": 1, "a": [2]})");
  EXPECT_EQ(call(""), "f{}");
  for (const char* digits : {"18446744073709551615", "-123456789012345678901234567890"})
    EXPECT_EQ(call(fmt::format(R"({{"id": {}}})", digits)),
              fmt::format(R"(f{{"id": {}}})", digits));
  EXPECT_EQ(call("{bad"), R"(f"{bad")");
}

TEST(ChatRequest, VariablesTakeNoPlaceOfMessages) {
  for (const char* name : {"chat_template_kwargs", "variables"}) {
    for (const char* odd : {"5", "[5]", "null", "{}"}) {
      const std::string body = fmt::format(
          R"({{"messages": [{{"role": "user"}}], "{}": {{"messages": {}}}}})", name, odd);
      EXPECT_THROW(rendered(body, "{{ messages }}"), Error) << body;
    }
  }
}

TEST(ChatRequest, NumbersAreFinite) {
  for (const char* more : {R"("documents": [NaN])", R"("x": {"a": [Infinity]})"})
    EXPECT_THROW(rendered(R"({"messages": [{"role": "user"}], )" + std::string(more) + "}", "x"),
                 Error)
        << more;
}

TEST(ChatRequest, ToolsKeepTheOrderOfTheirKeys) {
  const char* source = "{{ tools | tojson if tools else 'none' }}{{ x }}{# <tool_call> #}";
  const std::string tools = R"("tools": [{"z": 1, "function": {"name": "f", "b": 3}}], )";
  const std::string rest = R"("messages": [{"role": "user"}], "chat_template_kwargs": {"x": 7}})";
  EXPECT_EQ(rendered("{" + tools + rest, source),
            R"([{"z": 1, "function": {"name": "f", "b": 3}}]7)");
  EXPECT_EQ(rendered(R"({"tool_choice": "none", )" + tools + rest, source), "none7");
  EXPECT_THROW(rendered(R"({"tool_choice": "required", )" + rest, source), Error);
  EXPECT_THROW(rendered(R"({"tool_choice": "perhaps", )" + tools + rest, source), Error);
  EXPECT_THROW(rendered(R"({"tools": 5, )" + rest, source), Error);
}

TEST(ChatRequest, PartsGoToATemplateThatTakesThem) {
  const std::string parts = R"({"messages": [{"role": "user", "content": [
    {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]})";
  const std::string text = R"({"messages": [{"role": "user", "content": "c"}]})";
  const char* either =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(rendered(parts, either), "[a][b]");
  EXPECT_EQ(rendered(text, either), "c");
  const char* only =
      "{% for m in messages %}{% for p in m.content %}[{{ p['text'] }}]{% endfor %}{% endfor %}";
  EXPECT_EQ(rendered(parts, only), "[a][b]");
  EXPECT_EQ(rendered(text, only), "[c]");
  const char* first = "{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}";
  EXPECT_EQ(rendered(parts, first), "a\nb") << "a part is lost";
  EXPECT_EQ(rendered(text, first), "c");
  EXPECT_EQ(rendered(parts, "{% for m in messages %}{{ m.content | trim }}{% endfor %}"), "a\nb");
}

TEST(ChatRequest, TheSystemIsHeardWhereverTheTemplateTakesIt) {
  const std::string body = R"({"messages": [{"role": "system", "content": "s"},
    {"role": "system", "content": "t"}, {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a"}, {"role": "system", "content": "n"},
    {"role": "user", "content": "v"}, {"role": "system", "content": "m"}]})";
  const std::string any = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
  EXPECT_EQ(rendered(body, any), "system=s;system=t;user=u;assistant=a;system=n;user=v;system=m;");
  EXPECT_EQ(rendered(body,
                     "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                     "{{ raise_exception('no') }}{% endif %}{{ m.role }}={{ m.content }};"
                     "{% endfor %}"),
            "system=s\n\nt;user=u;assistant=a;user=n\n\nv\n\nm;");
  EXPECT_EQ(rendered(body,
                     "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}="
                     "{{ m.content }};{% endif %}{% endfor %}"),
            "user=s\n\nt\n\nu;assistant=a;user=n\n\nv\n\nm;");
}

TEST(ChatRequest, ATemplateThatShowsOneCallGetsOneAMessage) {
  const std::string source =
      "{% if tools %}<tool_call>{{ tools }}{% endif %}{% for m in messages %}"
      "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}"
      "{% endif %}{{ m.content }}{{ m.tool_calls[0].function.name }}"
      "{{ m.tool_calls[0].function.arguments.x }};"
      "{% else %}{{ m.role }}={{ m.content }};{% endif %}{% endfor %}";
  EXPECT_EQ(rendered(R"({"messages": [{"role": "user", "content": "u"},
    {"role": "assistant", "content": "a", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{}"}},
      {"id": "2", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "2", "content": "s"},
    {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "v"}]})",
                     source),
            "user=u;af;tool=r;g;tool=s;user=v;");
  ChatTemplate chat_template({}, "template", source);
  EXPECT_TRUE(chat_template.tool_support().one_call);
}

TEST(ChatRequest, ATextTellsOfToolsWhereTheTemplateShowsNone) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}{# no calls #}";
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  const std::string conversation = R"("messages": [{"role": "user", "content": "u"},
    {"role": "assistant", "content": "a", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
      {"id": "2", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "r"},
    {"role": "tool", "tool_call_id": "2", "content": "s"}, {"role": "user", "content": "v"}])";
  const std::string text = rendered("{" + tools + ", " + conversation + "}", source);
  EXPECT_TRUE(text.starts_with("system=")) << text;
  EXPECT_NE(text.find(R"({"type": "function", "function": {"name": "f"}})"), text.npos);
  EXPECT_NE(text.find("<tool_call>\n{\"name\": \"NAME\", \"arguments\": "), text.npos);
  const std::string told = R"(user=u;assistant=a
<tool_call>
{"name": "f", "arguments": {"x": 1}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {}}
</tool_call>;user=<tool_response>
r
</tool_response>
<tool_response>
s
</tool_response>
v;)";
  EXPECT_TRUE(text.ends_with(told)) << text;
  EXPECT_EQ(rendered("{" + conversation + "}", source), told);
  const char* no_system =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.role }}={{ m.content }};{% endfor %}";
  EXPECT_TRUE(rendered("{" + tools + ", " + conversation + "}", no_system).starts_with("user=You"));
  ChatTemplate refuses({}, "template", source);
  refuses.use_tools(ToolFormat::none);
  const std::string body = "{" + tools + ", " + conversation + "}";
  EXPECT_THROW(render_chat(parse_ordered(body, "it"), "it", refuses, [](uint64_t) {}), Error);
}

// Parts of a text as they come, and what the events say together.
class ChatAnswerTest : public testing::Test {
 protected:
  std::unique_ptr<Answer> answer(bool stream, const std::string& prompt = "x") {
    Completion asked;
    asked.prompts = {{1, 2, 3}};
    asked.stream = stream;
    asked.include_usage = true;
    return chat_answer(std::move(asked), {.id = "chatcmpl-1", .model = "m", .created = 5},
                       &tokenizer_, {.prompt_end = prompt});
  }

  static StreamPart last(const std::string& text) {
    StreamPart part;
    part.result.emplace();
    part.result->text = text;
    part.result->ids = {1, 2};
    part.result->finish_reason = "stop";
    part.result->prefix_tokens = 2;
    return part;
  }

  Tokenizer tokenizer_ = test::load_tokenizer(test::small_tokenizer());
};

TEST_F(ChatAnswerTest, AWholeAnswer) {
  std::unique_ptr<Answer> a = answer(false);
  std::string out;
  a->take(0, 0, last("<think>\nhm\n</think>\n\nyes"), out);
  EXPECT_TRUE(a->done());
  EXPECT_EQ(out, "");
  a->finish(out);
  const Json body = Json::parse(out);
  EXPECT_TRUE(
      out.starts_with(R"({"id":"chatcmpl-1","object":"chat.completion","created":5,)"
                      R"("model":"m","choices":[{"index":0,"message":{"role":"assistant",)"))
      << out;
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("choices").at(0).at("message"),
            Json::parse(R"({"role": "assistant", "content": "yes", "reasoning_content": "hm"})"));
  EXPECT_EQ(body.at("usage"), Json::parse(R"({"prompt_tokens": 3, "completion_tokens": 2,
    "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}})"));
}

TEST_F(ChatAnswerTest, CallsHaveTheOrderOfTheApiAndOfTheModel) {
  const ChatForm form{.chat_template = "<tool_call>",
                      .tools = Json::parse(R"([{"function": {"name": "f"}}])")};
  for (auto* make : {&chat_answer, &messages_answer, &responses_answer}) {
    Completion asked;
    asked.prompts = {{1, 2, 3}};
    const std::unique_ptr<Answer> a =
        make(std::move(asked), {.id = "x-1", .model = "m", .created = 5}, &tokenizer_, form);
    std::string out;
    a->take(0, 0,
            last("<tool_call>\n{\"name\": \"f\", \"arguments\": "
                 "{\"z\": 18446744073709551616, \"a\": 1}}\n</tool_call>"),
            out);
    a->finish(out);
    EXPECT_LT(out.find(R"("name":"f")"), out.find("18446744073709551616")) << out;
    EXPECT_LT(out.find("z"), out.find("18446744073709551616")) << out;
    EXPECT_NE(out.find("1}", out.find("18446744073709551616")), out.npos) << out;
    EXPECT_LT(out.find(R"("id")"), out.find(R"("model")")) << out;
  }
}

TEST_F(ChatAnswerTest, AStreamSaysTheSameWhereverItIsCut) {
  const std::string text = "<think>\nhm\n</think>\n\nyes, \"\xC3\xA9\"";
  for (size_t step = 1; step <= text.size(); ++step) {
    std::unique_ptr<Answer> a = answer(true);
    std::string out;
    a->begin(out);
    for (size_t at = 0; at < text.size();) {
      size_t size = std::min(step, text.size() - at);
      while (at + size < text.size() && (text[at + size] & 0xC0) == 0x80) ++size;  // characters
      a->take(0, 0, {.text = text.substr(at, size)}, out);
      at += size;
    }
    a->take(0, 0, last(text), out);
    a->finish(out);
    std::string content, reasoning, reason, role;
    Json usage;
    ASSERT_TRUE(out.ends_with("\n\ndata: [DONE]\n\n"));
    out.resize(out.size() - kStreamDone.size());
    for (size_t at = 0; at < out.size();) {
      const size_t end = out.find("\n\n", at);
      const Json event = Json::parse(out.substr(at + 6, end - at - 6));
      at = end + 2;
      EXPECT_EQ(event.at("object"), "chat.completion.chunk");
      usage = event.at("usage");
      if (event.at("choices").empty()) continue;
      const Json& choice = event.at("choices").at(0);
      role += choice.at("delta").value("role", "");
      content += choice.at("delta").value("content", "");
      reasoning += choice.at("delta").value("reasoning_content", "");
      if (!choice.at("finish_reason").is_null()) reason += choice.at("finish_reason");
    }
    EXPECT_EQ(role, "assistant");
    EXPECT_EQ(content, "yes, \"\xC3\xA9\"");
    EXPECT_EQ(reasoning, "hm");
    EXPECT_EQ(reason, "stop");
    EXPECT_EQ(usage.at("total_tokens"), 5);
  }
}

TEST_F(ChatAnswerTest, AFailedStreamEndsWithAnErrorEvent) {
  std::unique_ptr<Answer> a = answer(true);
  std::string out;
  StreamPart part;
  part.result.emplace();
  part.result->finish_reason = "error";
  part.result->error = "why";
  a->take(0, 0, part, out);
  EXPECT_EQ(a->error(), "why");
  EXPECT_FALSE(a->done());
  EXPECT_EQ(out, "");
  a->fail(Refusal(500, a->error()), out);
  ASSERT_TRUE(out.starts_with("data: {"));
  EXPECT_EQ(Json::parse(out.substr(6)).at("error").at("message"), "why");
}

}  // namespace
}  // namespace sluice
