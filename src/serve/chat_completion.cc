#include "src/serve/chat_completion.h"

#include <utility>

#include "src/base/error.h"
#include "src/chat/api_messages.h"
#include "src/chat/chat_request.h"
#include "src/serve/request_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMostTopLogprobs = 20;  // OpenAI's
constexpr uint64_t kTextBytes = 32;       // for each of a text: copies, and what encoding takes

// Variables that the request gives the template beside the messages.
void set_variables(jinja::Context& context, const JsonFields& body, const jinja::Value& request) {
  if (body.has("reasoning_effort")) {
    context.set("reasoning_effort", make_text(context.meter(), body.string("reasoning_effort")));
  }
  if (!body.has("chat_template_kwargs")) return;
  const jinja::Value& given = *request.dict().find("chat_template_kwargs");
  if (!given.is(jinja::Kind::dict))
    fail(ErrorKind::refused, "{}: chat_template_kwargs must be an object", body.where());
  for (const auto& [name, value] : given.dict().entries) context.set(name.text(), value);
}

// What a model may call is what the template tells it of.
void check_tools(jinja::Context& context, const JsonFields& body) {
  const jinja::Value* tools = context.find("tools");
  if (tools != nullptr && !tools->is(jinja::Kind::none) && !tools->is(jinja::Kind::list))
    fail(ErrorKind::refused, "{}: tools must be a list", body.where());
  if (!body.has("tool_choice") || body.raw("tool_choice") == Json("auto")) return;
  if (body.raw("tool_choice") == Json("none")) return context.set("tools", jinja::Value::none());
  fail(ErrorKind::refused, "{}: tool_choice may be \"auto\" or \"none\" here", body.where());
}

bool has_tools(const JsonFields& body) {
  return body.has("tools") && !body.raw("tools").empty() &&
         !(body.has("tool_choice") && body.raw("tool_choice") == Json("none"));
}

}  // namespace

std::string render_chat(const Json& json, std::string_view text, const std::string& where,
                        ChatTemplate& chat_template, const RequestRoom& room) {
  const JsonFields body(json, where);
  jinja::Context context({}, room);
  try {
    const jinja::Value request = jinja::read_json(context.meter(), text, where);
    set_chat(context, request, true, where);
    context.set("messages", api_messages(context.meter(), *context.find("messages"), where));
    set_variables(context, body, request);
    check_tools(context, body);
    complete_chat(context);
  } catch (const jinja::Fault& fault) {
    fail(ErrorKind::refused, "{}: {}", where, fault.what());
  }
  return chat_template.render(context);
}

Chat parse_chat(const Json& json, std::string_view text, const std::string& where,
                const RequestContext& context, ChatTemplate& chat_template,
                const RequestRoom& room) {
  const JsonFields body(json, where);
  check_parameters(json, where, context.api);
  Chat chat{.asked = read_request(body, context)};
  SamplingParams& sampling = chat.asked.request.sampling;
  if (body.boolean_or("logprobs", false)) {
    sampling.logprobs = body.integer_or("top_logprobs", 0, kMostTopLogprobs, 0);
  } else if (body.integer_or("top_logprobs", 0, kMostTopLogprobs, 0) > 0) {
    fail(ErrorKind::usage, "{}: top_logprobs is for logprobs", where);
  }
  if (sampling.prompt_logprobs)
    fail(ErrorKind::usage, "{}: prompt_logprobs is for /v1/completions", where);
  const std::string prompt = render_chat(json, text, where, chat_template, room);
  room(prompt.size() * kTextBytes);
  chat.asked.prompts = {context.session.need_tokenizer().encode(
      prompt, body.boolean_or("add_special_tokens", false))};
  check_prompts(chat.asked, where, context);
  chat.form.set_prompt(prompt);
  if (has_tools(body)) chat.form.tools = body.raw("tools");
  chat.form.chat_template = chat_template.text(has_tools(body));
  if (AnswerParser::needs_special_tokens(chat.form.chat_template, chat.form.tools))
    chat.asked.request.skip_special_tokens = false;
  return chat;
}

}  // namespace sluice
