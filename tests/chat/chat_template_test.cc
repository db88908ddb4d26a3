#include "src/chat/chat_template.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/chat/chat_request.h"

namespace sluice {
namespace {

std::string render(ChatFiles files, std::string_view request) {
  ChatTemplate chat_template(std::move(files), "model");
  jinja::Context context;
  set_chat(context, jinja::read_json(context.meter(), request, "request"), true, "request");
  complete_chat(context);
  return chat_template.render(context);
}

constexpr std::string_view kRequest = R"([{"role": "user", "content": "Hi"}])";

TEST(ChatTemplate, IsChosenByItsName) {
  const ChatFiles files{.templates = {{"tool_use", "f", "tools"}, {"default", "f", "plain"}},
                        .special = {}};
  EXPECT_EQ(render(files, kRequest), "plain");
  EXPECT_EQ(render(files, R"({"messages": [], "tools": [{}]})"), "tools");
  EXPECT_EQ(render(files, R"({"messages": [], "tools": []})"), "plain");
  const ChatFiles other{.templates = {{"rag", "f", ""}}, .special = {}};
  EXPECT_THROW(render(other, kRequest), Error);
  EXPECT_THROW(ChatTemplate({}, "model"), Error);
}

TEST(ChatTemplate, HasTheModelsTokens) {
  const ChatFiles files{
      .templates = {{"default", "f", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"}},
      .special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
  EXPECT_EQ(render(files, kRequest), "<s></s>False");
  EXPECT_EQ(render(files, R"({"messages": [], "variables": {"eos_token": "<e>"}})"), "<s><e>False");
}

// Transformers completes a conversation so.
TEST(ChatTemplate, SeesReasoningUnderEachOfItsNames) {
  const ChatFiles files{
      .templates = {{"default", "f",
                     "{{ messages[0].thinking }}|{{ messages[0].reasoning_content "
                     "}}|{{ tools is none }}|{{ messages[0] | list }}"}},
      .special = {}};
  EXPECT_EQ(render(files, R"([{"role": "assistant", "reasoning": "Hm"}])"),
            "Hm|Hm|True|['thinking', 'role', 'reasoning', 'reasoning_content']");
}

}  // namespace
}  // namespace sluice
