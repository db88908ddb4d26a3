#include "src/serve/apis/chat_completion.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/chat/answer_grammar.h"
#include "src/chat/api_messages.h"
#include "src/chat/call_form.h"
#include "src/chat/chat_request.h"
#include "src/chat/fit_messages.h"
#include "src/chat/message_values.h"
#include "src/grammar/composition.h"
#include "src/serve/apis/ordered_json.h"
#include "src/serve/apis/request_fields.h"
#include "src/serve/apis/structured.h"
#include "src/serve/apis/tool_choice.h"
#include "src/serve/batch/batch_file.h"

namespace sluice {
namespace {

constexpr int64_t kMostTopLogprobs = 20;  // OpenAI's
constexpr uint64_t kGrammarBytes = 128;  // for each of a body with schemas: trees of JSON and parts

// Variables that the request gives the template beside the messages.
void set_variables(jinja::Context& context, const OrderedFields& body) {
  if (body.has("reasoning_effort")) {
    const std::string effort = body.string("reasoning_effort");
    context.set("reasoning_effort", make_text(context.meter(), effort));
    // Templates have one switch or the other.
    if (effort == "none")
      for (const char* name : {"enable_thinking", "thinking"})
        context.set(name, jinja::Value::boolean(false));
  }
  if (!body.has("chat_template_kwargs")) return;
  const OrderedJson& given = body.raw("chat_template_kwargs");
  if (!given.is_object())
    fail(ErrorKind::refused, "{}: chat_template_kwargs must be an object", body.where());
  for (const auto& [name, value] : given.items()) {
    if (name == "messages")
      fail(ErrorKind::refused, "{}: chat_template_kwargs: messages cannot be one", body.where());
    context.set(name, jinja::value_of(context.meter(), value, body.where()));
  }
}

// Returns the text that an answer continues: the content of the last message.
std::string begun_answer(const jinja::Value& messages, const std::string& where) {
  const jinja::Value& last = messages.items().back();
  const jinja::Value& content = *last.dict().find("content");
  const bool parts = content.is(jinja::Kind::list) && !content.items().empty();
  std::string begun =
      parts ? text_member(content.items().back(), "text")->text() : content_text(last);
  if (role_of(last) != "assistant" || calls_of(last) != nullptr || begun.empty()) {
    fail(ErrorKind::usage,
         "{}: continue_final_message needs a text of the assistant as the last message", where);
  }
  return begun;
}

// Cuts the prompt as transformers does: behind the end of that content, which the template may
// trim.
void end_behind(const std::string& begun, const std::string& where, std::string& rendered) {
  const std::string_view trimmed = trim(begun);
  const size_t at = rendered.rfind(trimmed);
  if (trimmed.empty() || at == rendered.npos) {
    fail(ErrorKind::usage,
         "{}: the chat template does not show the last message as it is, so that "
         "it cannot be continued",
         where);
  }
  const std::string_view shown(trimmed.data(), begun.data() + begun.size());
  const bool whole = std::string_view(rendered).substr(at).starts_with(shown);
  rendered.resize(at + (whole ? shown.size() : trimmed.size()));
}

// Gives what set_chat() takes of a body.
jinja::Value asked_values(jinja::Meter& meter, const OrderedFields& body) {
  std::vector<jinja::Dict::Entry> entries;
  for (const char* name : {"messages", "tools", "documents", "variables"}) {
    if (body.has(name) || body.is_null(name))
      entries.emplace_back(make_text(meter, name),
                           jinja::value_of(meter, body.raw(name), body.where()));
  }
  return make_dict(meter, std::move(entries));
}

std::string render(const OrderedFields& body, const ToolChoice& choice, ChatTemplate& chat_template,
                   const ReserveMemory& reserve) {
  const std::string& where = body.where();
  const bool goes_on = body.boolean_or("continue_final_message", false);
  const bool prompts = body.boolean_or("add_generation_prompt", !goes_on);
  if (goes_on && prompts) {
    fail(ErrorKind::usage, "{}: continue_final_message goes without add_generation_prompt", where);
  }
  std::string begun;
  const ToolSupport& tool_support = chat_template.tool_support();
  const bool shown = !choice.none && !tool_support.told;  // tools, by the template
  const TemplateTraits& traits = chat_template.traits(shown);
  MessageStyle style = message_style(chat_template.text(shown));
  style.text_arguments = traits.text_arguments && !tool_support.written;
  jinja::Context context({}, reserve);
  jinja::Meter& meter = context.meter();
  try {
    set_chat(context, asked_values(meter, body), prompts, where);
    context.set("messages", api_messages(meter, *context.find("messages"), style, where));
    set_variables(context, body);
    if (choice.none) context.set("tools", jinja::Value::none());
    apply_tool_support(context, tool_support, where);
    context.set("messages", part_calls(meter, *context.find("messages"), traits));
    context.set("messages", place_system(meter, *context.find("messages"), traits));
    context.set("messages", fit_contents(meter, *context.find("messages"), traits));
    if (goes_on) begun = begun_answer(*context.find("messages"), where);
    complete_chat(context);
  } catch (const jinja::Fault& fault) {
    fail(ErrorKind::refused, "{}: {}", where, fault.what());
  }
  std::string rendered = chat_template.render(context);
  if (goes_on) end_behind(begun, where, rendered);
  return rendered;
}

// Makes the grammar of the answer, where the request asks for one: of its text, or its calls.
std::shared_ptr<const grammar::TokenGrammar> grammar_of_answer(
    const OrderedFields& body, uint64_t bytes, const ToolChoice& choice, const ChatForm& form,
    const Checkpoint& checkpoint, const ReserveMemory& reserve) {
  std::optional<AskedText> asked = asked_text(body);
  AnswerRules rules{.tools = callable_tools(body, choice),
                    .must_call = choice.must_call,
                    .one_call = choice.one_call,
                    .text = nullptr,
                    .form = form.hints.calls,
                    .begins_in_thoughts = form.hints.begins_in_thoughts};
  // Tools that may be called, in a form that nobody can hold, are not held.
  const bool free = !choice.must_call && std::ranges::none_of(rules.tools, &CallableTool::strict);
  if (free && form.hints.calls == nullptr && exact_call_form(form.chat_template) == nullptr)
    rules.tools.clear();
  if (!asked && rules.tools.empty()) return nullptr;
  reserve(bytes * kGrammarBytes);
  std::string where = body.where() + ": tools";
  if (asked) {
    where = asked->where;
    rules.text = {{"source", grammar::name_of(asked->source.kind)}};
    if (asked->source.json) {
      rules.text["json"] = *std::move(asked->source.json);
    } else {
      rules.text["text"] = std::move(asked->source.text);
    }
  }
  grammar::GrammarSource all{.kind = grammar::SourceKind::composition, .text = {}};
  all.json = answer_composition(form.chat_template, form.prompt_end, rules, where);
  return checkpoint.grammars().find(all, where);
}

}  // namespace

std::string render_chat(const OrderedJson& json, const std::string& where,
                        ChatTemplate& chat_template, const ReserveMemory& reserve) {
  const OrderedFields body(json, where);
  refuse_not_finite(json, where);
  return render(body, tool_choice_of(body), chat_template, reserve);
}

Chat parse_chat(const OrderedJson& json, uint64_t bytes, const std::string& where,
                const RequestContext& context, ChatTemplate& chat_template,
                const ReserveMemory& reserve) {
  const OrderedFields body(json, where);
  check_parameters(json, where, context.api, context.unknown);
  Chat chat{.asked = read_request(body, context)};
  SamplingParams& sampling = chat.asked.request.sampling;
  if (body.boolean_or("logprobs", false)) {
    sampling.logprobs = body.integer_or("top_logprobs", 0, kMostTopLogprobs, 0);
  } else if (body.integer_or("top_logprobs", 0, kMostTopLogprobs, 0) > 0) {
    fail(ErrorKind::usage, "{}: top_logprobs needs logprobs: true", where);
  }
  if (sampling.prompt_logprobs)
    fail(ErrorKind::usage,
         "{}: prompt_logprobs is not available for chats; send the prompt to /v1/completions",
         where);
  ToolChoice choice = tool_choice_of(body);
  refuse_not_finite(json, where);
  const ToolSupport& tool_support = chat_template.tool_support();
  choice.one_call = choice.one_call || tool_support.one_call;
  const std::string prompt = render(body, choice, chat_template, reserve);
  reserve(encode_bytes(prompt));
  chat.asked.prompts = {context.checkpoint.need_tokenizer().encode(
      prompt, body.boolean_or("add_special_tokens", false))};
  check_prompts(chat.asked, where, context);
  chat.form.set_prompt(prompt);
  if (!choice.none) chat.form.tools = round_integers(body.raw("tools"));
  if (body.has("tool_choice")) chat.form.tool_choice = round_integers(body.raw("tool_choice"));
  chat.form.parallel_calls = body.boolean_or("parallel_tool_calls", true) && !tool_support.one_call;
  chat.form.chat_template = chat_template.text(!choice.none && !tool_support.told);
  chat.form.hints = {.calls = tool_support.calls,
                     .one_call = choice.one_call,
                     .begins_in_thoughts = context.begins_in_thoughts};
  // A call that must be needs a form that can be held, even if it is not the model's own.
  if (choice.must_call && exact_call_form(chat.form.chat_template) == nullptr)
    chat.form.hints.calls = &generic_call_form();
  const auto is_token = [&](std::string_view tag) {
    return !tag.empty() && context.checkpoint.need_tokenizer().encode(tag, false).size() == 1;
  };
  chat.form.hints.call_tag_is_token =
      is_token(AnswerParser::call_tag(chat.form.chat_template, chat.form.hints.calls));
  chat.form.hints.thought_tags_are_tokens =
      chat.form.chat_template.find("think>") == std::string_view::npos && is_token("<think>") &&
      is_token("</think>");
  sampling.grammar = grammar_of_answer(body, bytes, choice, chat.form, context.checkpoint, reserve);
  if (AnswerParser::needs_special_tokens(chat.form.chat_template, chat.form.tools,
                                         chat.form.hints.calls))
    chat.asked.request.skip_special_tokens = false;
  return chat;
}

}  // namespace sluice
