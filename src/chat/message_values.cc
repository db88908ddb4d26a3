#include "src/chat/message_values.h"

#include <utility>
#include <vector>

namespace sluice {

using jinja::Dict;
using jinja::Kind;
using jinja::Meter;
using jinja::Value;

const Value* text_member(const Value& object, std::string_view key) {
  const Value* text = object.is(Kind::dict) ? object.dict().find(key) : nullptr;
  return text != nullptr && text->is(Kind::text) ? text : nullptr;
}

Value with_member(Meter& meter, const Value& object, std::string_view key, Value value) {
  std::vector<Dict::Entry> entries = object.dict().entries;
  entries.emplace_back(make_text(meter, std::string(key)), std::move(value));
  return make_dict(meter, std::move(entries));
}

Value make_message(Meter& meter, std::string_view role, std::string content) {
  std::vector<Dict::Entry> entries;
  entries.emplace_back(make_text(meter, "role"), make_text(meter, std::string(role)));
  entries.emplace_back(make_text(meter, "content"), make_text(meter, std::move(content)));
  return make_dict(meter, std::move(entries));
}

std::string role_of(const Value& message) {
  const Value* role = text_member(message, "role");
  return role == nullptr ? std::string() : role->text();
}

std::string content_text(const Value& message) {
  const Value* content = message.is(Kind::dict) ? message.dict().find("content") : nullptr;
  if (content == nullptr) return {};
  if (content->is(Kind::text)) return content->text();
  std::string text;
  if (!content->is(Kind::list)) return text;
  for (const Value& part : content->items()) {
    const Value* said = text_member(part, "text");
    if (said == nullptr) continue;
    if (!text.empty()) text += '\n';
    text += said->text();
  }
  return text;
}

const jinja::Values* calls_of(const Value& message) {
  const Value* calls = message.is(Kind::dict) ? message.dict().find("tool_calls") : nullptr;
  const bool some = calls != nullptr && calls->is(Kind::list) && !calls->items().empty();
  return some ? &calls->items() : nullptr;
}

}  // namespace sluice
