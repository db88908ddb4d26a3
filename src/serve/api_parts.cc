#include "src/serve/api_parts.h"

#include <utility>

#include "src/base/error.h"

namespace sluice {

Ordered function_tools(const Ordered& given, const ToolForm& form, const std::string& where) {
  if (!given.is_array()) fail(ErrorKind::refused, "{}: tools must be a list", where);
  const std::string at = where + ": tools";
  Ordered tools = Ordered::array();
  for (const Ordered& tool : given) {
    if (!tool.is_object()) fail(ErrorKind::refused, "{} must be objects", at);
    const bool typed = form.has_type || !is_null(tool, "type");
    if (typed && string_of(tool, "type", at) != form.type) continue;
    Ordered function{{"name", string_of(tool, "name", at)}};
    if (!is_null(tool, "description")) function["description"] = tool.at("description");
    if (!is_null(tool, "strict") && tool.at("strict") == true) function["strict"] = true;
    function["parameters"] = is_null(tool, form.schema) ? Ordered::object() : tool.at(form.schema);
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

Ordered response_format(const Ordered& format, const std::string& where) {
  if (string_of(format, "type", where) != "json_schema") return format;
  return {{"type", "json_schema"},
          {"json_schema", {{"schema", format.value("schema", Ordered::object())}}}};
}

}  // namespace sluice
