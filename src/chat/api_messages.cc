#include "src/chat/api_messages.h"

#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Meter;
using jinja::Value;

const Value* find_text(const Value& part, const char* key) {
  const Value* text = part.dict().find(key);
  return text != nullptr && text->is(Kind::text) ? text : nullptr;
}

// Of a part of a content: {"type": "text", "text": ...}.
const std::string& text_of_part(const Value& part, const std::string& where) {
  const Value* type = part.is(Kind::dict) ? find_text(part, "type") : nullptr;
  const Value* text = nullptr;
  if (type != nullptr && type->text().ends_with("text")) text = find_text(part, "text");
  if (type != nullptr && type->text() == "refusal") text = find_text(part, "refusal");
  if (text == nullptr) {
    fail(ErrorKind::refused, "{}: the parts of a content must be {{\"type\": \"text\", \"text\"}}",
         where);
  }
  return text->text();
}

Value content_of(Meter& meter, const Value* content, const std::string& where) {
  if (content == nullptr || content->is(Kind::none)) return make_text(meter, {});
  if (content->is(Kind::text)) return *content;
  if (!content->is(Kind::list))
    fail(ErrorKind::refused, "{}: content must be a text or a list of texts", where);
  std::string text;
  for (const Value& part : content->items()) {
    if (!text.empty()) text += '\n';
    text += text_of_part(part, where);
  }
  return make_text(meter, std::move(text));
}

// `dict` with another value under `key`.
Value with(Meter& meter, const Value& dict, std::string_view key, Value value) {
  std::vector<Dict::Entry> entries = dict.dict().entries;
  entries.emplace_back(make_text(meter, std::string(key)), std::move(value));
  return make_dict(meter, std::move(entries));
}

// What is no JSON stays a text: a model may have written it.
Value tool_call_of(Meter& meter, const Value& call) {
  const Value* function = call.is(Kind::dict) ? call.dict().find("function") : nullptr;
  if (function == nullptr || !function->is(Kind::dict)) return call;
  const Value* arguments = find_text(*function, "arguments");
  if (arguments == nullptr) return call;
  try {
    const std::string& text = arguments->text();
    Value parsed = jinja::read_json(meter, text.empty() ? "{}" : text, "arguments");
    if (!parsed.is(Kind::dict)) return call;
    return with(meter, call, "function", with(meter, *function, "arguments", std::move(parsed)));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::refused) throw;
    return call;
  }
}

Value message_of(Meter& meter, const Value& message, const std::string& where) {
  if (!message.is(Kind::dict) || find_text(message, "role") == nullptr)
    fail(ErrorKind::refused, "{} must be an object with a role", where);
  const Value* content = message.dict().find("content");
  Value changed = message;
  if (content == nullptr || !content->is(Kind::text))
    changed = with(meter, changed, "content", content_of(meter, content, where));
  const Value* calls = message.dict().find("tool_calls");
  if (calls == nullptr || !calls->is(Kind::list)) return changed;
  jinja::Values made;
  for (const Value& call : calls->items()) made.push_back(tool_call_of(meter, call));
  return with(meter, changed, "tool_calls", make_list(meter, std::move(made)));
}

}  // namespace

Value api_messages(Meter& meter, const Value& messages, std::string_view where) {
  if (!messages.is(Kind::list) || messages.items().empty()) {
    fail(ErrorKind::refused, "{}: messages must be a list of {{role, content}}, and not empty",
         where);
  }
  jinja::Values made;
  for (const Value& message : messages.items())
    made.push_back(message_of(meter, message, fmt::format("{}: message {}", where, made.size())));
  return make_list(meter, std::move(made));
}

}  // namespace sluice
