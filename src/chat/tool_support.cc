#include "src/chat/tool_support.h"

#include <utility>

#include "src/base/error.h"
#include "src/chat/channels.h"
#include "src/chat/chat_template.h"
#include "src/chat/message_values.h"
#include "src/jinja/operators.h"
#include "src/jinja/show.h"

namespace sluice {
namespace {

using jinja::Kind;
using jinja::Meter;
using jinja::Value;

// Returns true if a text can show calls of this form.
bool can_be_written(const CallForm& form) {
  return form.style == CallForm::Style::json && !form.call.empty();
}

std::string json_text(Meter& meter, const Value& value) {
  jinja::Buffer out(meter);
  jinja::append_json(value, {}, out);
  return out.take();
}

void append_pieces(std::span<const CallPiece> pieces, std::string_view name,
                   std::string_view arguments, int64_t number, std::string& text) {
  for (const CallPiece& piece : pieces) {
    switch (piece.kind) {
      case CallPiece::Kind::text:
      case CallPiece::Kind::token:
        text += piece.text;
        break;
      case CallPiece::Kind::blank:
        break;
      case CallPiece::Kind::name:
        text += name;
        break;
      case CallPiece::Kind::id:
        text += fmt::format("{:09}", number);
        break;
      case CallPiece::Kind::number:
        text += fmt::format("{}", number);
        break;
      case CallPiece::Kind::arguments:
        text += arguments;
        break;
    }
  }
}

// The content of a message, and the calls that it makes.
std::string written_message(Meter& meter, const Value& message, const CallForm& form) {
  std::string text = content_text(message);
  if (!text.empty()) text += '\n';
  append_pieces(form.begin, {}, {}, 0, text);
  int64_t number = 0;
  for (const Value& call : *calls_of(message)) {
    const Value* function = call.is(Kind::dict) ? call.dict().find("function") : nullptr;
    if (function == nullptr || !function->is(Kind::dict)) function = &call;
    const Value* name = text_member(*function, "name");
    const Value* given = function->is(Kind::dict) ? function->dict().find("arguments") : nullptr;
    const std::string arguments = given == nullptr        ? "{}"
                                  : given->is(Kind::text) ? given->text()
                                                          : json_text(meter, *given);
    if (number > 0) append_pieces(form.between, {}, {}, 0, text);
    append_pieces(form.call, name == nullptr ? std::string_view() : name->text(), arguments,
                  number++, text);
  }
  append_pieces(form.end, {}, {}, 0, text);
  return text;
}

Value without_calls(Meter& meter, const Value& message, std::string content) {
  std::vector<jinja::Dict::Entry> entries;
  for (const jinja::Dict::Entry& entry : message.dict().entries)
    if (entry.first.text() != "tool_calls") entries.push_back(entry);
  entries.emplace_back(make_text(meter, "content"), make_text(meter, std::move(content)));
  return make_dict(meter, std::move(entries));
}

bool is_result(const Value& message) {
  const std::string role = role_of(message);
  return role == "tool" || role == "function" || role == "ipython";
}

// Returns what a model needs to know of a tool: clients send more, such as marks of a cache.
Value described(Meter& meter, const Value& tool) {
  const Value* function = tool.is(Kind::dict) ? tool.dict().find("function") : nullptr;
  if (function == nullptr || !function->is(Kind::dict)) return tool;
  std::vector<jinja::Dict::Entry> said;
  for (const jinja::Dict::Entry& entry : function->dict().entries) {
    const std::string& key = entry.first.text();
    if (key == "name" || key == "description" || key == "parameters") said.push_back(entry);
  }
  return make_dict(meter, {{make_text(meter, "type"), make_text(meter, "function")},
                           {make_text(meter, "function"), make_dict(meter, std::move(said))}});
}

std::string instruction(Meter& meter, const Value& tools, const CallForm& form) {
  std::string text =
      "You can call tools. Each line between <tools> and </tools> describes one, as JSON:\n<tools>";
  for (const Value& tool : tools.items())
    text.append("\n").append(json_text(meter, described(meter, tool)));
  text +=
      "\n</tools>\nTo call a tool, write its name and its arguments, a JSON object, like this:\n";
  append_pieces(form.begin, {}, {}, 0, text);
  append_pieces(form.call, "NAME", R"({"PARAMETER": "VALUE"})", 0, text);
  append_pieces(form.end, {}, {}, 0, text);
  text +=
      "\nWrite one such call behind another to call several tools. What they return comes between "
      "<tool_response> and </tool_response>. Where no tool is needed, answer without a call.";
  return text;
}

}  // namespace

std::string ToolSupport::description() const {
  if (refused) return "refused: the chat template shows none (--tool-format none)";
  std::string text = "the chat template shows them";
  if (told && written) {
    text =
        "the chat template shows none; a system message describes them, and calls have the generic "
        "form";
  } else if (told) {
    text = "the chat template shows calls alone; a system message describes the tools in that form";
  } else if (untold) {
    text =
        "the chat template has a form of calls but does not show the tools; add --tool-format "
        "generic to describe them to the model";
  } else if (calls == &generic_call_form()) {
    text +=
        "; its form of calls is unknown, calls are found in the generic form (add --tool-format "
        "generic to describe it to the model)";
  }
  if (written && !told) text += "; earlier calls are shown as text";
  if (one_call) text += "; one call in an answer, as the template shows no more";
  return text;
}

ToolSupport find_tool_support(ChatTemplate& chat_template, ToolFormat format) {
  const std::string& own_text = chat_template.text(true);
  const TemplateTraits& own = chat_template.traits(true);
  const bool channels = has_channels(own_text);  // answers of no other form have any
  const bool known = channels || call_form(own_text) != nullptr;
  ToolSupport support;
  if (channels || (own.tools && format != ToolFormat::generic)) {
    support.one_call = own.calls && !own.several_calls;
    if (!known && format != ToolFormat::none) support.calls = &generic_call_form();
    const CallForm* form = known ? exact_call_form(own_text) : support.calls;
    support.written = !channels && !own.calls && form != nullptr && can_be_written(*form);
    if (support.written) support.calls = form;
    return support;
  }
  const TemplateTraits& plain = chat_template.traits(false);
  support.refused = format == ToolFormat::none;
  if (known && format == ToolFormat::automatic) {
    // The model knows the form: it is told of the tools, if the form can be.
    const CallForm* form = exact_call_form(own_text);
    support.told = plain.call_names && form != nullptr && can_be_written(*form);
    support.one_call = plain.calls && !plain.several_calls;
    support.untold = !support.told;
    if (support.told) support.calls = form;
    return support;
  }
  support.told = true;
  support.written = !support.refused;
  support.calls = &generic_call_form();
  return support;
}

Value with_written_calls(Meter& meter, const Value& messages, const CallForm& form) {
  jinja::Values made;
  bool results = false;  // the last message has some
  for (const Value& message : messages.items()) {
    const bool result = is_result(message);
    if (!result && !(results && role_of(message) == "user")) {
      results = false;
      made.push_back(calls_of(message) == nullptr
                         ? message
                         : without_calls(meter, message, written_message(meter, message, form)));
      continue;
    }
    std::string text = results ? content_text(made.back()) + "\n" : std::string();
    if (result) text += "<tool_response>\n";
    text += content_text(message);
    if (result) text += "\n</tool_response>";
    if (results) made.pop_back();
    made.push_back(make_message(meter, "user", std::move(text)));
    results = result;
  }
  return make_list(meter, std::move(made));
}

Value with_tools_told(Meter& meter, const Value& messages, const Value& tools,
                      const CallForm& form) {
  jinja::Values made = messages.items();
  std::string text = instruction(meter, tools, form);
  if (!made.empty() && role_of(made.front()) == "system") {
    made.front() =
        with_member(meter, made.front(), "content",
                    make_text(meter, content_text(made.front()) + "\n\n" + std::move(text)));
  } else {
    made.insert(made.begin(), make_message(meter, "system", std::move(text)));
  }
  return make_list(meter, std::move(made));
}

void apply_tool_support(jinja::Context& context, const ToolSupport& support,
                        std::string_view where) {
  const Value* tools = context.find("tools");
  const bool some = tools != nullptr && tools->is(Kind::list) && !tools->items().empty();
  if (some && support.refused) {
    fail(ErrorKind::refused,
         "{}: tools: the model's chat template shows none; give --tool-format auto to tell the "
         "model of them in a text",
         where);
  }
  Meter& meter = context.meter();
  const CallForm& calls = support.calls != nullptr ? *support.calls : generic_call_form();
  if (support.written)
    context.set("messages", with_written_calls(meter, *context.find("messages"), calls));
  if (!some || !support.told) return;
  const Value list = *tools;
  context.set("messages", with_tools_told(meter, *context.find("messages"), list, calls));
  context.set("tools", Value::none());
}

}  // namespace sluice
