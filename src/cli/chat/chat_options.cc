#include "src/cli/chat/chat_options.h"

#include <map>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/chat/chat_request.h"
#include "src/chat/fit_messages.h"
#include "src/chat/message_values.h"
#include "src/cli/help.h"
#include "src/cli/input.h"
#include "src/jinja/operators.h"

namespace sluice::cli {

void add_chat_options(CLI::App& verb, ChatOptions& o) {
  begin_group(verb, kOwnGroup);
  verb.add_option("--messages", o.messages,
                  "Render the conversation in this JSON file, a list of {role, content}, by the "
                  "model's chat template; - for standard input")
      ->type_name("FILE");
  add_template_options(verb, o);
  verb.add_flag("--no-generation-prompt", o.no_generation_prompt,
                "Leave out what begins the model's answer");
}

void add_template_options(CLI::App& verb, ChatOptions& o) {
  begin_group(verb, kOwnGroup);
  verb.add_option("--chat-template", o.chat_template,
                  "Use the chat template in this file instead of the model's")
      ->type_name("FILE");
  verb.add_option("--tools", o.tools, "Offer the tools in this JSON file, a list, to the model")
      ->type_name("FILE");
  verb.add_option("--template-variables", o.variables,
                  "Give the chat template these variables, a JSON object: "
                  "{\"enable_thinking\": false}");
}

std::string read_input(const std::string& path, const std::string& option,
                       const std::stop_token& stop) {
  constexpr size_t kLongest = 64 * MiB;
  io::InputStream input = open_input(path, option, stop);
  std::string text;
  for (std::string_view piece = input.read(); !piece.empty(); piece = input.read()) {
    text += piece;
    if (text.size() > kLongest)
      fail(ErrorKind::refused, "{} {}: has more than {}", option, path, format_size(kLongest));
  }
  return text;
}

void add_tool_format(CLI::App& verb, ToolFormat& format) {
  static const std::map<std::string, ToolFormat> kNames{{"auto", ToolFormat::automatic},
                                                        {"generic", ToolFormat::generic},
                                                        {"none", ToolFormat::none}};
  verb.add_option_function<std::string>(
          "--tool-format", [&format](const std::string& name) { format = kNames.at(name); },
          "Tell the model of tools as its chat template does, and in a generic form where that "
          "shows none (auto); always in the generic form; or refuse tools that the template does "
          "not show (none)")
      ->check(CLI::IsMember(kNames))
      ->default_str("auto");
}

ChatTemplate open_chat_template(const ChatOptions& o, ChatFiles files, const std::string& model,
                                const std::stop_token& stop) {
  ChatTemplate chat_template =
      o.chat_template ? ChatTemplate(std::move(files), *o.chat_template,
                                     read_input(*o.chat_template, "--chat-template", stop))
                      : ChatTemplate(std::move(files), model);
  if (o.tool_format) chat_template.use_tools(*o.tool_format);
  return chat_template;
}

void complete_messages(jinja::Context& context, const ChatOptions& o, ChatTemplate& chat_template,
                       const std::string& where) {
  const jinja::Value* tools = context.find("tools");
  const jinja::Value& messages = *context.find("messages");
  bool calls = tools != nullptr && jinja::truth(*tools);
  const bool list = messages.is(jinja::Kind::list);  // a variable may have taken its place
  if (list)
    for (const jinja::Value& message : messages.items())
      calls = calls || calls_of(message) != nullptr;
  if (o.tool_format && list && calls) {
    const ToolSupport& form = chat_template.tool_support();
    apply_tool_support(context, form, where);
    if (form.told) {
      context.set("messages", place_system(context.meter(), *context.find("messages"),
                                           chat_template.traits(false)));
    }
  }
  complete_chat(context);
}

TemplateVariables read_variables(const ChatOptions& o, const std::stop_token& stop) {
  TemplateVariables read{.tools = {}, .where = {}, .variables = o.variables};
  if (o.tools) {
    read.tools = read_input(*o.tools, "--tools", stop);
    read.where = "--tools " + *o.tools;
  }
  jinja::Context context;
  set_variables(context, read);  // refuses what is wrong
  return read;
}

void set_variables(jinja::Context& context, const TemplateVariables& read) {
  if (read.tools) {
    jinja::Value tools = jinja::read_json(context.meter(), *read.tools, read.where);
    if (!tools.is(jinja::Kind::list)) fail(ErrorKind::refused, "{}: must be a list", read.where);
    context.set("tools", std::move(tools));
  }
  if (!read.variables) return;
  jinja::Value variables;
  try {
    variables = jinja::read_json(context.meter(), *read.variables, "--template-variables");
  } catch (const Error& e) {
    fail(ErrorKind::usage, "{}", e.what());
  }
  if (!variables.is(jinja::Kind::dict))
    fail(ErrorKind::usage, "--template-variables: must be a JSON object");
  for (const auto& [name, value] : variables.dict().entries) context.set(name.text(), value);
}

std::string render_messages(const ChatOptions& o, ChatTemplate& chat_template,
                            const std::stop_token& stop, jinja::Meter::Reserve reserve) {
  const std::string where = fmt::format("--messages {}", *o.messages);
  std::string text = read_input(*o.messages, "--messages", stop);
  if (reserve) {
    reserve = [held = text.size(), asked = std::move(reserve)](uint64_t bytes) {
      asked(bytes + held);
    };
    reserve(0);
  }
  jinja::Context context({}, std::move(reserve));
  set_chat(context, jinja::read_json(context.meter(), text, where), !o.no_generation_prompt, where);
  set_variables(context, read_variables(o, stop));
  complete_messages(context, o, chat_template, where);
  return chat_template.render(context);
}

}  // namespace sluice::cli
