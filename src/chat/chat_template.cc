#include "src/chat/chat_template.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "io/file.h"
#include "src/base/error.h"
#include "src/jinja/operators.h"

namespace sluice {

ChatTemplate::ChatTemplate(ChatFiles files, std::string_view model) : files_(std::move(files)) {
  if (!files_.templates.empty()) return;
  fail(ErrorKind::refused,
       "{}: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
       "give one as --chat-template FILE",
       io::printable(model));
}

ChatTemplate::ChatTemplate(ChatFiles files, std::string file, std::string source)
    : files_(std::move(files)) {
  files_.templates.clear();
  files_.templates.push_back({"default", std::move(file), std::move(source)});
}

const ChatTemplateText& ChatTemplate::chosen(bool tools) const {
  const ChatTemplateText* text = tools ? files_.find("tool_use") : nullptr;
  if (text == nullptr) text = files_.find("default");
  if (text == nullptr) {
    std::vector<std::string> names;
    for (const ChatTemplateText& each : files_.templates) names.push_back(each.name);
    fail(ErrorKind::refused, "{}: has no chat template \"default\"; it has {}",
         files_.templates.front().where, fmt::join(names, ", "));
  }
  return *text;
}

const TemplateTraits& ChatTemplate::traits(bool tools) {
  auto at = traits_.find(tools);
  if (at == traits_.end()) at = traits_.try_emplace(tools, find_traits(*this, tools)).first;
  return at->second;
}

const ToolSupport& ChatTemplate::tool_support() {
  if (!tool_support_) tool_support_ = find_tool_support(*this, tool_format_);
  return *tool_support_;
}

void ChatTemplate::use_tools(ToolFormat format) {
  tool_format_ = format;
  tool_support_.reset();
}

std::string ChatTemplate::render(jinja::Context& context) {
  for (const auto& [name, token] : files_.special) {
    if (context.find(name) == nullptr) context.set(name, jinja::make_text(context.meter(), token));
  }
  const jinja::Value* tools = context.find("tools");
  const ChatTemplateText& text = chosen(tools != nullptr && jinja::truth(*tools));
  auto at = parsed_.find(text.name);
  if (at == parsed_.end()) at = parsed_.try_emplace(text.name, text.where, text.text).first;
  return at->second.render(context);
}

}  // namespace sluice
