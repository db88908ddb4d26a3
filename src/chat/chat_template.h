// A conversation as the text that its model was trained on: the model's templates.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "src/chat/template_traits.h"
#include "src/chat/tool_support.h"
#include "src/jinja/template.h"
#include "src/models/chat_files.h"

namespace sluice {

class ChatTemplate {
 public:
  // Error(refused) where there is no template; `model` is for that message.
  ChatTemplate(ChatFiles files, std::string_view model);
  // With this template in place of the model's own.
  ChatTemplate(ChatFiles files, std::string file, std::string source);

  // Templates are parsed when they are first used. Of the variables that `context` has, and the
  // special tokens that it has not. Where there are tools, the template "tool_use", if there is
  // one. Throws jinja::TemplateError, or what the context's room throws.
  std::string render(jinja::Context& context);

  // Returns the traits to which a conversation with tools, or one without, is fitted. Found when
  // first asked for.
  const TemplateTraits& traits(bool tools);
  const ToolSupport& tool_support();
  void use_tools(ToolFormat format);  // else ToolFormat::automatic

  // Returns the template that is rendered, with tools or without.
  const std::string& text(bool tools) const { return chosen(tools).text; }

 private:
  const ChatTemplateText& chosen(bool tools) const;

  ChatFiles files_;
  std::map<std::string, jinja::Template, std::less<>> parsed_;  // by name
  std::map<bool, TemplateTraits> traits_;                       // with tools, and without
  ToolFormat tool_format_ = ToolFormat::automatic;
  std::optional<ToolSupport> tool_support_;
};

}  // namespace sluice
