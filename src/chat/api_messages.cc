#include "src/chat/api_messages.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/chat/message_values.h"
#include "src/jinja/show.h"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Meter;
using jinja::Value;

// A part of a content as templates know it: {"type": "text", "text": ...}.
Value text_part(Meter& meter, const Value& part, const std::string& where) {
  const Value* type = text_member(part, "type");
  if (type == nullptr) {
    fail(ErrorKind::refused, "{}: the parts of a content must be {{\"type\": \"text\", \"text\"}}",
         where);
  }
  const bool refusal = type->text() == "refusal";
  if (!refusal && !type->text().ends_with("text")) {
    fail(ErrorKind::refused, "{}: parts of type {:?} are not supported; send text", where,
         type->text());
  }
  const char* key = refusal ? "refusal" : "text";
  const Value* text = text_member(part, key);
  if (text == nullptr) fail(ErrorKind::refused, "{}: {} of a part must be a string", where, key);
  if (type->text() == "text") return part;
  return with_member(meter, with_member(meter, part, "type", make_text(meter, "text")), "text",
                     *text);
}

Value content_of(Meter& meter, const Value* content, const std::string& where) {
  if (content == nullptr || content->is(Kind::none)) return make_text(meter, {});
  if (content->is(Kind::text)) return *content;
  if (!content->is(Kind::list))
    fail(ErrorKind::refused, "{}: content must be a text or a list of texts", where);
  jinja::Values parts;
  for (const Value& part : content->items()) parts.push_back(text_part(meter, part, where));
  return make_list(meter, std::move(parts));
}

// Makes an id of nine letters and digits from the API's, which may be any text; equal ids stay
// equal.
std::string short_id(const std::string& id) {
  constexpr size_t kLength = 9;
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  if (id.size() == kLength) return id;
  std::string made;
  for (uint64_t rest = checksum64(std::as_bytes(std::span(id))); made.size() < kLength;
       rest /= kDigits.size())
    made += kDigits[rest % kDigits.size()];
  return made;
}

// `dict` with a short id under `key`, where there is one and the template wants it.
Value with_short_id(Meter& meter, const Value& dict, const char* key, const MessageStyle& style) {
  const Value* id = style.short_ids ? text_member(dict, key) : nullptr;
  return id == nullptr ? dict
                       : with_member(meter, dict, key, make_text(meter, short_id(id->text())));
}

Value with_text_arguments(Meter& meter, const Value& call, const Value& function) {
  const Value* arguments = function.dict().find("arguments");
  if (arguments == nullptr || arguments->is(Kind::text)) return call;
  jinja::Buffer text(meter);
  jinja::append_json(*arguments, {}, text);
  return with_member(meter, call, "function",
                     with_member(meter, function, "arguments", make_text(meter, text.take())));
}

// Arguments that are not JSON stay a text: a model may have written them.
Value with_arguments(Meter& meter, const Value& call, const MessageStyle& style) {
  const Value* function = call.is(Kind::dict) ? call.dict().find("function") : nullptr;
  if (function == nullptr || !function->is(Kind::dict)) return call;
  if (style.text_arguments) return with_text_arguments(meter, call, *function);
  const Value* arguments = text_member(*function, "arguments");
  if (arguments == nullptr) return call;
  try {
    const std::string& text = arguments->text();
    Value parsed = jinja::read_json(meter, text.empty() ? "{}" : text, "arguments");
    if (!parsed.is(Kind::dict)) return call;
    return with_member(meter, call, "function",
                       with_member(meter, *function, "arguments", std::move(parsed)));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::refused) throw;
    return call;
  }
}

// Templates ask whether a member is there, and clients send those that are not as null.
Value without_nulls(Meter& meter, const Value& message) {
  std::vector<Dict::Entry> entries;
  for (const Dict::Entry& entry : message.dict().entries) {
    const auto& [key, value] = entry;
    const bool none = value.is(Kind::none) ||
                      (key.text() == "tool_calls" && value.is(Kind::list) && value.items().empty());
    if (!none) entries.push_back(entry);
  }
  return make_dict(meter, std::move(entries));
}

Value message_of(Meter& meter, const Value& message, const MessageStyle& style,
                 const std::string& where) {
  if (!message.is(Kind::dict) || text_member(message, "role") == nullptr)
    fail(ErrorKind::refused, "{} must be an object with a role", where);
  Value changed = with_short_id(meter, without_nulls(meter, message), "tool_call_id", style);
  if (!style.developer && text_member(message, "role")->text() == "developer")
    changed = with_member(meter, changed, "role", make_text(meter, "system"));
  const Value* content = message.dict().find("content");
  if (content == nullptr || !content->is(Kind::text))
    changed = with_member(meter, changed, "content", content_of(meter, content, where));
  const Value* calls = message.dict().find("tool_calls");
  if (calls == nullptr || !calls->is(Kind::list) || calls->items().empty()) return changed;
  jinja::Values made;
  for (const Value& call : calls->items())
    made.push_back(with_short_id(meter, with_arguments(meter, call, style), "id", style));
  return with_member(meter, changed, "tool_calls", make_list(meter, std::move(made)));
}

}  // namespace

// Older ones of Mistral refuse other ids.
MessageStyle message_style(std::string_view chat_template) {
  return {.developer = chat_template.find("developer") != chat_template.npos,
          .short_ids = chat_template.find("|length != 9") != chat_template.npos};
}

Value api_messages(Meter& meter, const Value& messages, const MessageStyle& style,
                   std::string_view where) {
  if (!messages.is(Kind::list) || messages.items().empty()) {
    fail(ErrorKind::refused, "{}: messages must be a list of {{role, content}}, and not empty",
         where);
  }
  jinja::Values made;
  for (const Value& message : messages.items())
    made.push_back(
        message_of(meter, message, style, fmt::format("{}: message {}", where, made.size())));
  return make_list(meter, std::move(made));
}

}  // namespace sluice
