#include "src/serve/apis/api_parts.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

void add_tool(const OrderedJson& tool, const std::string& space, const ToolForm& form,
              const std::string& at, OrderedJson& tools) {
  if (!tool.is_object()) fail(ErrorKind::refused, "{} must be objects", at);
  const bool typed = form.has_type || !is_null(tool, "type");
  const std::string type = typed ? string_of(tool, "type", at) : std::string(form.type);
  if (form.has_spaces && type == "namespace" && space.empty() && !is_null(tool, "tools")) {
    const std::string name = string_of(tool, "name", at);
    for (const OrderedJson& inner : tool.at("tools")) add_tool(inner, name, form, at, tools);
  }
  if (type != form.type) return;
  const std::string name = string_of(tool, "name", at);
  OrderedJson function{{"name", space.empty() ? name : name_in(space, name)}};
  if (!space.empty()) function["namespace"] = space;
  if (!is_null(tool, "description")) function["description"] = string_of(tool, "description", at);
  if (member(tool, "strict") == true) function["strict"] = true;
  function["parameters"] = object_of(tool, form.schema, at);
  tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

}  // namespace

std::string name_in(const std::string& space, const std::string& name) {
  return space + "__" + name;
}

OrderedJson function_tools(const OrderedJson& given, const ToolForm& form,
                           const std::string& where) {
  if (!given.is_array()) fail(ErrorKind::refused, "{}: tools must be a list", where);
  OrderedJson tools = OrderedJson::array();
  for (const OrderedJson& tool : given) add_tool(tool, {}, form, where + ": tools", tools);
  return tools;
}

OrderedJson response_format(const OrderedJson& format, const std::string& where) {
  if (string_of(format, "type", where) != "json_schema") return format;
  return {{"type", "json_schema"},
          {"json_schema", {{"schema", format.value("schema", OrderedJson::object())}}}};
}

void move_same(OrderedJson& body, std::span<const SameName> same, OrderedJson& chat) {
  for (const auto& [theirs, ours] : same)
    if (!is_null(body, theirs)) chat[ours] = std::move(body.at(theirs));
}

// Values that have been moved are null.
void pass_on(OrderedJson& body, std::initializer_list<std::span<const std::string_view>> without,
             OrderedJson& chat) {
  for (auto& [key, value] : body.items()) {
    const bool known = value.is_null() || chat.contains(key) ||
                       std::ranges::any_of(without, [&](std::span<const std::string_view> names) {
                         return std::ranges::find(names, key) != names.end();
                       });
    if (!known) chat[key] = std::move(value);
  }
}

}  // namespace sluice
