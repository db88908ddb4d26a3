// The options of verbs that render a conversation by the model's chat template.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "src/chat/chat_template.h"

namespace sluice::cli {

struct ChatOptions {
  std::optional<std::string> messages;
  std::optional<std::string> chat_template;
  std::optional<std::string> tools;
  std::optional<std::string> variables;
  std::optional<ToolFormat> tool_format;  // none: just what the template makes of the tools
  bool no_generation_prompt = false;
};

// --messages, and what belongs to it.
void add_chat_options(CLI::App& verb, ChatOptions& options);
// Adds the template, its tools and variables: what a typed conversation takes of these options.
void add_template_options(CLI::App& verb, ChatOptions& options);

// --tool-format, for verbs whose models shall call tools, whatever the template shows.
void add_tool_format(CLI::App& verb, ToolFormat& format);

// The template of --chat-template, or the model's.
ChatTemplate open_chat_template(const ChatOptions& options, ChatFiles files,
                                const std::string& model, const std::stop_token& stop);
// Texts of --tools and --template-variables, which templates get.
struct TemplateVariables {
  std::optional<std::string> tools;
  std::string where;  // of the tools, for messages
  std::optional<std::string> variables;
};
// Error(refused), or Error(usage), for what is no list, or no object.
TemplateVariables read_variables(const ChatOptions& options, const std::stop_token& stop);
void set_variables(jinja::Context& context, const TemplateVariables& variables);
// Puts the tools, calls and results of the conversation in `context` into the form of
// --tool-format.
void complete_messages(jinja::Context& context, const ChatOptions& options,
                       ChatTemplate& chat_template, const std::string& where);
// The conversation of --messages as a text. `reserve`: asked for the memory that it takes.
std::string render_messages(const ChatOptions& options, ChatTemplate& chat_template,
                            const std::stop_token& stop, jinja::Meter::Reserve reserve = {});

// A whole file, "-" for stdin; Error(refused) where it is larger than a conversation may be.
std::string read_input(const std::string& path, const std::string& option,
                       const std::stop_token& stop);

}  // namespace sluice::cli
