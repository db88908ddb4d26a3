#include "src/serve/apis/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/serve/apis/api_parts.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

// Names of both APIs.
constexpr std::array<SameName, 6> kSame{{{"max_output_tokens", "max_completion_tokens"},
                                         {"model", "model"},
                                         {"seed", "seed"},
                                         {"stream", "stream"},
                                         {"temperature", "temperature"},
                                         {"top_p", "top_p"}}};
constexpr std::array<std::string_view, 10> kRead{"chat_template_kwargs",
                                                 "include",
                                                 "input",
                                                 "instructions",
                                                 "parallel_tool_calls",
                                                 "reasoning",
                                                 "text",
                                                 "tool_choice",
                                                 "tools",
                                                 "top_logprobs"};
// Items of tools that another service ran, and what clients keep for themselves: they say nothing
// to a model here.
constexpr std::array<std::string_view, 10> kPassedOver{
    "code_interpreter_call", "compaction",
    "context_compaction",    "file_search_call",
    "ghost_snapshot",        "image_generation_call",
    "mcp_approval_request",  "mcp_approval_response",
    "tool_search_output",    "web_search_call"};
// Say nothing about the answer, or what is so in any case.
constexpr std::array<std::string_view, 12> kIgnored{
    "background",        "client_metadata",  "max_tool_calls",
    "metadata",          "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "service_tier",     "store",
    "stream_options",    "truncation",       "user"};

std::string name_of(const OrderedJson& function, const std::string& where) {
  std::string name = string_of(function, "name", where);
  if (is_null(function, "namespace")) return name;
  return name_in(string_of(function, "namespace", where), name);
}

// Items of an answer are one message of a chat: thoughts, a text, and calls.
class Conversation {
 public:
  void add(const OrderedJson& item, const std::string& where) {
    const std::string type = item.is_object() && is_null(item, "type")
                                 ? std::string("message")
                                 : string_of(item, "type", where);
    if (type == "message") {
      const std::string role = string_of(item, "role", where);
      if (is_null(item, "content")) fail(ErrorKind::refused, "{}: content is missing", where);
      OrderedJson content = content_of(item.at("content"), where);
      if (role == "assistant" && is_open() && messages_.back().at("content") == "") {
        messages_.back()["content"] = std::move(content);
      } else if (messages_.size() == 1 && instructs(role) &&
                 instructs(messages_.back().at("role"))) {
        // Many templates have one such message, and it is the first.
        messages_.back()["content"] =
            text_of(messages_.back().at("content"), where) + "\n\n" + text_of(content, where);
      } else {
        messages_.push_back({{"role", role}, {"content", std::move(content)}});
      }
    } else if (type == "reasoning") {
      for (const char* key : {"content", "summary"}) {
        if (is_null(item, key) || item.at(key).empty()) continue;
        answer()["reasoning_content"] = text_of(item.at(key), where);
        break;
      }
    } else if (type == "function_call") {
      call(string_of(item, "call_id", where), name_of(item, where),
           string_of(item, "arguments", where));
    } else if (type == "custom_tool_call") {
      call(string_of(item, "call_id", where), string_of(item, "name", where),
           OrderedJson{{"input", string_of(item, "input", where)}}.dump());
    } else if (type == "mcp_call") {
      const std::string id = string_of(item, "id", where);
      call(id, string_of(item, "name", where), string_of(item, "arguments", where));
      result(id, item.value(is_null(item, "output") ? "error" : "output", OrderedJson("")), where);
    } else if (type.ends_with("_call_output")) {
      const char* key = is_null(item, "output") && !is_null(item, "status") ? "status" : "output";
      if (is_null(item, key)) fail(ErrorKind::refused, "{}: output is missing", where);
      result(id_of_call(item, where), item.at(key), where);
    } else if (std::ranges::find(kPassedOver, type) != kPassedOver.end()) {
      return;
    } else if (type.ends_with("_call")) {
      add_call_of_client(item, type, where);
    } else if (type == "item_reference") {
      fail(ErrorKind::refused,
           "{}: this server keeps nothing between requests; send the item itself", where);
    } else {
      fail(ErrorKind::refused, "{}: items of type {:?} are not supported", where, type);
    }
  }

  OrderedJson take() { return std::move(messages_); }

 private:
  void call(std::string id, std::string name, std::string arguments) {
    answer()["tool_calls"].push_back(
        {{"id", std::move(id)},
         {"type", "function"},
         {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
  }

  // Outputs of the client's own tools may be objects.
  void result(std::string id, const OrderedJson& output, const std::string& where) {
    const bool texts =
        output.is_string() || (output.is_array() && !output.empty() && output.front().is_object() &&
                               output.front().contains("type"));
    if (member(output, "type") == "computer_screenshot")
      fail(ErrorKind::refused, "{}: images are not supported; send text", where);
    messages_.push_back(
        {{"role", "tool"},
         {"tool_call_id", std::move(id)},
         {"content", texts ? content_of(output, where) : OrderedJson(dump_ordered(output))}});
  }

  static std::string id_of_call(const OrderedJson& item, const std::string& where) {
    return string_of(item, is_null(item, "call_id") ? "id" : "call_id", where);
  }

  // shell_call, local_shell_call, apply_patch_call: tools that the client runs have their input in
  // a member of their own.
  void add_call_of_client(const OrderedJson& item, const std::string& type,
                          const std::string& where) {
    for (const char* key : {"action", "operation", "arguments"}) {
      if (is_null(item, key)) continue;
      const std::string name = type.substr(0, type.size() - std::string_view("_call").size());
      return call(id_of_call(item, where), name, dump_ordered(item.at(key)));
    }
    fail(ErrorKind::refused, "{}: items of type {:?} are not supported", where, type);
  }

  static bool instructs(const OrderedJson& role) { return role == "system" || role == "developer"; }
  bool is_open() const { return !messages_.empty() && messages_.back().at("role") == "assistant"; }
  OrderedJson& answer() {
    if (!is_open()) messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
  }

  OrderedJson messages_ = OrderedJson::array();
};

// A choice has a function's name in itself here, and in an object of its own there.
OrderedJson choice_of(const OrderedJson& given, const std::string& where) {
  auto named = [&](const OrderedJson& tool) -> OrderedJson {
    if (is_null(tool, "name")) return tool;
    return {{"type", "function"}, {"function", {{"name", name_of(tool, where)}}}};
  };
  if (member(given, "type") != "allowed_tools") return named(given);
  OrderedJson tools = OrderedJson::array();
  for (const OrderedJson& tool : given.value("tools", OrderedJson::array()))
    tools.push_back(named(tool));
  return {{"type", "allowed_tools"},
          {"allowed_tools",
           {{"mode", given.value("mode", OrderedJson("auto"))}, {"tools", std::move(tools)}}}};
}

void check_keys(const OrderedJson& body, const std::string& where) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (!is_null(body, key)) {
      fail(ErrorKind::refused,
           "{}: {}: this server keeps nothing between requests; send the whole conversation as "
           "input",
           where, key);
    }
  }
  if (!is_null(body, "prompt"))
    fail(ErrorKind::refused, "{}: prompt: stored prompts are not supported; send instructions",
         where);
  if (!is_null(body, "background") && body.at("background") != false)
    fail(ErrorKind::refused, "{}: background is not supported", where);
}

// The likeliest tokens are asked for by their number, the logprobs of an answer's own tokens by
// what is to be included.
void add_logprobs(const OrderedJson& body, OrderedJson& chat, const std::string& where) {
  bool asked = false;
  if (!is_null(body, "include")) {
    const OrderedJson& include = body.at("include");
    const auto is_text = [](const OrderedJson& each) { return each.is_string(); };
    if (!include.is_array() || !std::ranges::all_of(include, is_text))
      fail(ErrorKind::refused, "{}: include must be a list of texts", where);
    asked =
        std::ranges::find(include, OrderedJson("message.output_text.logprobs")) != include.end();
  }
  const bool likeliest = !is_null(body, "top_logprobs") && body.at("top_logprobs") != 0;
  if (!asked && !likeliest) return;
  chat["logprobs"] = true;
  chat["top_logprobs"] = likeliest ? body.at("top_logprobs") : OrderedJson(0);
}

}  // namespace

OrderedJson chat_of_responses(OrderedJson body, const std::string& where) {
  if (!body.is_object()) fail(ErrorKind::refused, "{}: must be a JSON object", where);
  check_keys(body, where);
  OrderedJson chat = OrderedJson::object();
  move_same(body, kSame, chat);
  Conversation conversation;
  if (!is_null(body, "instructions")) {
    if (!body.at("instructions").is_string())
      fail(ErrorKind::refused, "{}: instructions must be a text", where);
    conversation.add({{"role", "system"}, {"content", body.at("instructions")}},
                     where + ": instructions");
  }
  if (is_null(body, "input")) fail(ErrorKind::refused, "{}: input is missing", where);
  OrderedJson& input = body.at("input");
  if (input.is_array()) {
    for (size_t i = 0; i < input.size(); ++i) {
      conversation.add(input.at(i), fmt::format("{}: item {} of input", where, i));
      input.at(i) = nullptr;  // so that there is one tree, about
    }
  } else {
    conversation.add({{"role", "user"}, {"content", input}}, where + ": input");
  }
  chat["messages"] = conversation.take();
  if (!is_null(body, "tools"))
    chat["tools"] = function_tools(body.at("tools"), kFunctionTool, where);
  if (!is_null(body, "tool_choice"))
    chat["tool_choice"] = choice_of(body.at("tool_choice"), where + ": tool_choice");
  for (const char* same : {"parallel_tool_calls", "chat_template_kwargs"})
    if (!is_null(body, same)) chat[same] = std::move(body.at(same));
  add_logprobs(body, chat, where);
  const OrderedJson reasoning = object_of(body, "reasoning", where);
  if (!is_null(reasoning, "effort")) chat["reasoning_effort"] = reasoning.at("effort");
  const OrderedJson said = object_of(body, "text", where);
  if (!is_null(said, "format"))
    chat["response_format"] = response_format(said.at("format"), where + ": text.format");
  pass_on(body, {kIgnored, kRead}, chat);
  return chat;
}

Json response_echo(const OrderedJson& body) {
  if (!body.is_object()) return Json::object();
  Json echo{{"background", false},
            {"instructions", nullptr},
            {"max_output_tokens", nullptr},
            {"max_tool_calls", nullptr},
            {"metadata", Json::object()},
            {"previous_response_id", nullptr},
            {"prompt_cache_key", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"safety_identifier", nullptr},
            {"text", {{"format", {{"type", "text"}}}}},
            {"top_logprobs", 0},
            {"truncation", "disabled"},
            {"user", nullptr}};
  for (auto& [key, value] : echo.items())
    if (!is_null(body, key.c_str())) value = round_integers(body.at(key));
  echo["store"] = false;
  return echo;
}

}  // namespace sluice
