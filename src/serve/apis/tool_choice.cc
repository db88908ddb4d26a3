#include "src/serve/apis/tool_choice.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

// {"type": "function", "function": {"name": NAME}}, as all of OpenAI's APIs have it here.
std::string function_name(const OrderedJson& tool, const std::string& where) {
  const OrderedFields fields(tool, where);
  return OrderedFields(fields.raw("function"), where + ": function").string("name");
}

std::vector<std::string> function_names(const OrderedJson& tools, const std::string& where) {
  if (!tools.is_array()) fail(ErrorKind::refused, "{} must be a list", where);
  std::vector<std::string> names;
  for (const OrderedJson& tool : tools) names.push_back(function_name(tool, where));
  return names;
}

void read_mode(const std::string& mode, const std::string& where, ToolChoice& choice) {
  if (mode == "none") {
    choice.none = true;
  } else if (mode == "required") {
    choice.must_call = true;
  } else if (mode != "auto") {
    fail(ErrorKind::refused, "{} must be \"none\", \"auto\", \"required\" or an object, not {:?}",
         where, mode);
  }
}

void read_choice(const OrderedJson& given, const std::string& where, ToolChoice& choice) {
  if (given.is_string()) return read_mode(given.get<std::string>(), where, choice);
  const OrderedFields fields(given, where);
  const std::string type = fields.string("type");
  if (type == "function") {
    choice.names = {function_name(given, where)};
    choice.must_call = choice.one_call = true;
  } else if (type == "allowed_tools") {
    const OrderedFields allowed(fields.raw("allowed_tools"), where + ": allowed_tools");
    read_mode(allowed.string("mode"), allowed.where() + ": mode", choice);
    choice.names = function_names(allowed.raw("tools"), allowed.where() + ": tools");
    if (choice.names.empty()) choice.none = true;
  } else {
    fail(ErrorKind::refused, "{}: type {:?} is not supported", where, type);
  }
}

void check_tools(const OrderedJson& tools, const std::string& where) {
  if (!tools.is_array()) fail(ErrorKind::refused, "{} must be a list", where);
  for (const OrderedJson& tool : tools) {
    const OrderedFields fields(tool, where);
    if (const std::string type = fields.string_or("type", "function"); type != "function")
      fail(ErrorKind::refused, "{}: type {:?} is not supported; send functions", where, type);
    const OrderedFields function(fields.raw("function"), where + ": function");
    function.string("name");
    function.string_or("description", "");
    if (function.has("parameters"))
      OrderedFields(function.raw("parameters"), where + ": parameters");
  }
}

bool is_strict(const OrderedJson& function) { return member(function, "strict") == true; }

}  // namespace

ToolChoice tool_choice_of(const OrderedFields& body) {
  ToolChoice choice;
  const std::string where = body.where() + ": tool_choice";
  if (body.has("tool_choice")) read_choice(body.raw("tool_choice"), where, choice);
  if (!body.boolean_or("parallel_tool_calls", true)) choice.one_call = true;
  if (body.has("tools")) check_tools(body.raw("tools"), body.where() + ": tools");
  const bool tools = body.has("tools") && !body.raw("tools").empty();
  if (!tools && choice.must_call) fail(ErrorKind::refused, "{}: needs tools", where);
  if (!tools) choice.none = true;
  if (choice.names.empty()) return choice;
  const std::vector<std::string> known =
      function_names(body.raw("tools"), body.where() + ": tools");
  for (const std::string& name : choice.names) {
    if (std::ranges::find(known, name) == known.end())
      fail(ErrorKind::refused, "{}: unknown tool {:?}", where, name);
  }
  return choice;
}

std::vector<CallableTool> callable_tools(const OrderedFields& body, const ToolChoice& choice) {
  std::vector<CallableTool> tools;
  if (choice.none) return tools;
  const std::string where = body.where() + ": tools";
  bool held = choice.must_call || !choice.names.empty();
  for (const OrderedJson& tool : body.raw("tools")) held = held || is_strict(tool.at("function"));
  if (!held) return tools;
  refuse_large_objects(body.raw("tools"), where);
  for (const OrderedJson& tool : body.raw("tools")) {
    const OrderedJson& function = tool.at("function");
    std::string name = string_of(function, "name", where);
    const bool named =
        choice.names.empty() || std::ranges::find(choice.names, name) != choice.names.end();
    if (!named) continue;
    tools.push_back({.name = std::move(name),
                     .schema = round_integers(function.value("parameters", OrderedJson())),
                     .strict = is_strict(function)});
  }
  return tools;
}

}  // namespace sluice
