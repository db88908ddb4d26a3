#include "src/chat/chat_request.h"

#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Value;

void check_messages(const Value& messages, std::string_view where) {
  if (!messages.is(Kind::list))
    fail(ErrorKind::refused, "{}: messages must be a list of {{role, content}}", where);
  for (size_t i = 0; i < messages.items().size(); ++i) {
    if (!messages.items()[i].is(Kind::dict))
      fail(ErrorKind::refused, "{}: message {} must be an object of {{role, content}}", where, i);
  }
}

// The first of the names of a message's reasoning that has a value.
const Value* reasoning_of(const Value& message) {
  for (std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = message.dict().find(name);
    if (found != nullptr && !found->is(Kind::none)) return found;
  }
  return nullptr;
}

Value with_all_names(jinja::Meter& meter, const Value& message) {
  const Value* reasoning = reasoning_of(message);
  if (reasoning == nullptr) return message;
  std::vector<Dict::Entry> entries{{make_text(meter, "thinking"), *reasoning}};
  for (const Dict::Entry& entry : message.dict().entries) entries.push_back(entry);
  entries.emplace_back(make_text(meter, "reasoning_content"), *reasoning);
  return make_dict(meter, std::move(entries));
}

}  // namespace

void set_chat(jinja::Context& context, const Value& request, bool add_generation_prompt,
              std::string_view where) {
  context.set("add_generation_prompt", Value::boolean(add_generation_prompt));
  if (!request.is(Kind::dict)) {
    check_messages(request, where);
    context.set("messages", request);
    return;
  }
  for (std::string_view name : {"messages", "add_generation_prompt", "tools", "documents"}) {
    if (const Value* value = request.dict().find(name)) context.set(std::string(name), *value);
  }
  const Value* messages = context.find("messages");
  if (messages == nullptr) fail(ErrorKind::refused, "{}: messages are missing", where);
  check_messages(*messages, where);
  const Value* variables = request.dict().find("variables");
  if (variables == nullptr) return;
  if (!variables->is(Kind::dict))
    fail(ErrorKind::refused, "{}: variables must be an object", where);
  for (const auto& [name, value] : variables->dict().entries) context.set(name.text(), value);
}

void complete_chat(jinja::Context& context) {
  for (const char* name : {"tools", "documents"})
    if (context.find(name) == nullptr) context.set(name, Value::none());
  const Value& given = *context.find("messages");
  check_messages(given, "a variable");  // may have taken their place
  jinja::Values messages;
  for (const Value& message : given.items())
    messages.push_back(with_all_names(context.meter(), message));
  context.set("messages", make_list(context.meter(), std::move(messages)));
}

}  // namespace sluice
