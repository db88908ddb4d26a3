#include "src/serve/api_parts.h"

#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

void add_tool(const Ordered& tool, const std::string& space, const ToolForm& form,
              const std::string& at, Ordered& tools) {
  if (!tool.is_object()) fail(ErrorKind::refused, "{} must be objects", at);
  const bool typed = form.has_type || !is_null(tool, "type");
  const std::string type = typed ? string_of(tool, "type", at) : std::string(form.type);
  if (form.has_spaces && type == "namespace" && space.empty() && !is_null(tool, "tools")) {
    const std::string name = string_of(tool, "name", at);
    for (const Ordered& inner : tool.at("tools")) add_tool(inner, name, form, at, tools);
  }
  if (type != form.type) return;
  const std::string name = string_of(tool, "name", at);
  Ordered function{{"name", space.empty() ? name : name_in(space, name)}};
  if (!space.empty()) function["namespace"] = space;
  if (!is_null(tool, "description")) function["description"] = string_of(tool, "description", at);
  if (!is_null(tool, "strict") && tool.at("strict") == true) function["strict"] = true;
  function["parameters"] = object_of(tool, form.schema, at);
  tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

}  // namespace

std::string name_in(const std::string& space, const std::string& name) {
  return space + "__" + name;
}

Ordered function_tools(const Ordered& given, const ToolForm& form, const std::string& where) {
  if (!given.is_array()) fail(ErrorKind::refused, "{}: tools must be a list", where);
  Ordered tools = Ordered::array();
  for (const Ordered& tool : given) add_tool(tool, {}, form, where + ": tools", tools);
  return tools;
}

Ordered response_format(const Ordered& format, const std::string& where) {
  if (string_of(format, "type", where) != "json_schema") return format;
  return {{"type", "json_schema"},
          {"json_schema", {{"schema", format.value("schema", Ordered::object())}}}};
}

}  // namespace sluice
