// Parts of requests of Anthropic's API and of OpenAI's responses, as chat completions have them.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "src/serve/apis/ordered_json.h"

namespace sluice {

// An API's form of a function that its client runs.
struct ToolForm {
  std::string_view type;    // of such a tool; others are run by the service, and are left out
  bool has_type = true;     // each tool says its type; else that is this one where nothing is said
  const char* schema = "";  // the key of its arguments' schema
  bool has_spaces = false;  // tools may be grouped in namespaces
};
inline constexpr ToolForm kCustomTool{"custom", false, "input_schema"};         // Anthropic's
inline constexpr ToolForm kFunctionTool{"function", true, "parameters", true};  // OpenAI's

// The name that a model knows a tool of a namespace by.
std::string name_in(const std::string& space, const std::string& name);

// Functions of a namespace say which in a member `namespace`. Error(refused) that begins with
// `where` for what is no list of tools.
OrderedJson function_tools(const OrderedJson& given, const ToolForm& form,
                           const std::string& where);

// Returns the response_format of a text's format, whose schema is a member of the format itself
// there.
OrderedJson response_format(const OrderedJson& format, const std::string& where);

// A parameter's name in such a request, and in one for chat completions.
using SameName = std::pair<const char*, const char*>;
void move_same(OrderedJson& body, std::span<const SameName> same, OrderedJson& chat);
// Moves parameters of other APIs, which go on as they are: all but the named ones.
void pass_on(OrderedJson& body, std::initializer_list<std::span<const std::string_view>> without,
             OrderedJson& chat);

}  // namespace sluice
