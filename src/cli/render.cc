// sluice render: a conversation as the text that the model gets. MODEL may hold tokenizer files
// only.

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/chat/chat_request.h"
#include "src/cli/chat/chat_options.h"
#include "src/cli/common.h"
#include "src/cli/input.h"
#include "src/cli/verbs.h"
#include "src/models/source.h"

namespace sluice::cli {
namespace {

struct RenderOptions : CommonOptions {
  ChatOptions chat;
  std::optional<std::string> jsonl;
};

// A line's own variables come after those of the options. What is wrong with a conversation is its
// line's answer.
Json render_line(const RenderOptions& o, const TemplateVariables& variables,
                 ChatTemplate& chat_template, const std::string& line, const std::string& where) {
  try {
    jinja::Context context;
    set_variables(context, variables);
    set_chat(context, jinja::read_json(context.meter(), line, where), !o.chat.no_generation_prompt,
             where);
    return {{"rendered", chat_template.render(context)}};
  } catch (const jinja::TemplateError& e) {
    return {{"error", e.message()}};
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::refused) throw;
    return {{"error", e.what()}};
  }
}

void render(const RenderOptions& o, const std::stop_token& stop) {
  apply_log_level(o);
  if (o.chat.messages.has_value() == o.jsonl.has_value())
    fail(ErrorKind::usage, "give the conversation as one of --messages or --jsonl");
  ChatTemplate chat_template = open_chat_template(
      o.chat, open_model({o.model_path, {}, o.outside_links()})->chat_files(), o.model, stop);
  if (o.jsonl) {
    const TemplateVariables variables = read_variables(o.chat, stop);
    each_line(*o.jsonl, stop, [&](const std::string& line, const std::string& where) {
      return render_line(o, variables, chat_template, line, where);
    });
    return;
  }
  const std::string text = render_messages(o.chat, chat_template, stop);
  if (o.json) {
    print_json({{"rendered", text}});
  } else {
    print(text);  // nothing else: it can be another run's --prompt-file
  }
}

}  // namespace

void define_render(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<RenderOptions>();
  CLI::App* verb = app.add_subcommand("render", "Render a conversation by the chat template");
  verb->footer(
      "Examples:\n"
      "  echo '[{\"role\": \"user\", \"content\": \"Hello\"}]' > chat.json\n"
      "  sluice render MODEL --messages chat.json\n"
      "  sluice render MODEL --messages - --tools tools.json < chat.json\n"
      "  sluice render MODEL --messages chat.json \\\n"
      "    --template-variables '{\"enable_thinking\": false}'\n"
      "  sluice render MODEL --jsonl chats.jsonl\n"
      "A line of --jsonl: {\"messages\": [...], \"add_generation_prompt\": true,\n"
      "  \"variables\": {}}");
  o->texts_only = true;
  add_basic_options(*verb, *o, stop);
  add_chat_options(*verb, o->chat);
  verb->add_option("--jsonl", o->jsonl,
                   "Answer each line of this file, a JSON request; - for standard input")
      ->type_name("FILE");
  verb->callback([o, stop] { render(*o, stop); });
}

}  // namespace sluice::cli
