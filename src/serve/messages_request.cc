#include "src/serve/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/serve/api_parts.h"
#include "src/serve/ordered_json.h"

namespace sluice {
namespace {

// Names of both APIs.
constexpr std::array<std::pair<const char*, const char*>, 7> kSame{{{"max_tokens", "max_tokens"},
                                                                    {"model", "model"},
                                                                    {"stop_sequences", "stop"},
                                                                    {"stream", "stream"},
                                                                    {"temperature", "temperature"},
                                                                    {"top_k", "top_k"},
                                                                    {"top_p", "top_p"}}};
// Say nothing about the answer, or only how another service would make it.
constexpr std::array<std::string_view, 6> kIgnored{
    "betas", "cache_control", "context_management", "inference_geo", "metadata", "service_tier"};
constexpr std::array<std::string_view, 7> kReadMembers{
    "messages", "output_config", "output_format", "system", "thinking", "tool_choice", "tools"};

Ordered message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// What a message of blocks says, which may be several messages of a chat: results of tools have
// their own.
class Blocks {
 public:
  Blocks(std::string role, std::string where) : role_(std::move(role)), where_(std::move(where)) {}

  void add(const Ordered& block, Ordered& messages) {
    const std::string type = string_of(block, "type", where_);
    if (type == "text") {
      if (!text_.empty()) text_ += '\n';
      text_ += string_of(block, "text", where_);
    } else if (type == "thinking") {
      thoughts_ += string_of(block, "thinking", where_);
    } else if (type == "tool_use") {
      calls_.push_back({{"id", string_of(block, "id", where_)},
                        {"type", "function"},
                        {"function",
                         {{"name", string_of(block, "name", where_)},
                          {"arguments", block.value("input", Ordered::object())}}}});
    } else if (type == "tool_result") {
      Ordered result = message(
          "tool", is_null(block, "content") ? std::string() : text_of(block.at("content"), where_));
      result["tool_call_id"] = string_of(block, "tool_use_id", where_);
      messages.push_back(std::move(result));
      told_ = true;
    } else if (type != "redacted_thinking") {
      fail(ErrorKind::refused, "{}: blocks of type {:?} are not supported here", where_, type);
    }
  }

  void finish(Ordered& messages) {
    if (told_ && text_.empty() && calls_.empty()) return;
    Ordered whole = message(role_.c_str(), std::move(text_));
    if (!thoughts_.empty()) whole["reasoning_content"] = std::move(thoughts_);
    if (!calls_.empty()) whole["tool_calls"] = std::move(calls_);
    messages.push_back(std::move(whole));
  }

 private:
  std::string role_;
  std::string where_;
  std::string text_;
  std::string thoughts_;
  Ordered calls_ = Ordered::array();
  bool told_ = false;  // a tool's result
};

void add_message(const Ordered& given, const std::string& where, Ordered& messages) {
  const std::string role = string_of(given, "role", where);
  if (role != "user" && role != "assistant")
    fail(ErrorKind::refused, "{}: role must be user or assistant", where);
  if (is_null(given, "content")) fail(ErrorKind::refused, "{}: content is missing", where);
  const Ordered& content = given.at("content");
  if (!content.is_array()) {
    messages.push_back(message(role.c_str(), text_of(content, where)));
    return;
  }
  Blocks blocks(role, where);
  for (const Ordered& block : content) blocks.add(block, messages);
  blocks.finish(messages);
}

// "any" is OpenAI's "required"; "tool" names one.
void read_choice(const Ordered& given, const std::string& where, Ordered& chat) {
  const std::string type = string_of(given, "type", where);
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", string_of(given, "name", where)}}}};
  } else {
    chat["tool_choice"] = type == "any" ? "required" : type;
  }
  if (!is_null(given, "disable_parallel_tool_use"))
    chat["parallel_tool_calls"] = given.at("disable_parallel_tool_use") != true;
}

// How much it may think, and the schema of its text: a member of its own in older clients.
void read_output(const Ordered& body, const std::string& where, Ordered& chat) {
  const Ordered none = Ordered::object();
  const Ordered& config = is_null(body, "output_config") ? none : body.at("output_config");
  if (!is_null(config, "effort"))
    chat["reasoning_effort"] = string_of(config, "effort", where + ": output_config");
  const bool older = is_null(config, "format");
  if (older && is_null(body, "output_format")) return;
  chat["response_format"] =
      response_format(older ? body.at("output_format") : config.at("format"),
                      where + (older ? ": output_format" : ": output_config"));
}

// Parameters of other APIs go on as they are.
void pass_on(const Ordered& body, Ordered& chat) {
  for (const auto& [key, value] : body.items()) {
    const bool known =
        value.is_null() || chat.contains(key) ||
        std::ranges::find(kIgnored, key) != kIgnored.end() ||
        std::ranges::find(kReadMembers, key) != kReadMembers.end() ||
        std::ranges::any_of(kSame, [&](const auto& same) { return key == same.first; });
    if (!known) chat[key] = value;
  }
}

}  // namespace

std::string chat_of_messages(std::string_view text, const std::string& where, bool generates) {
  const Ordered body = Ordered::parse(text, nullptr, false);
  if (!body.is_object()) fail(ErrorKind::refused, "{}: must be a JSON object", where);
  if (generates && is_null(body, "max_tokens"))
    fail(ErrorKind::refused, "{}: max_tokens is missing", where);
  Ordered chat = Ordered::object();
  for (const auto& [theirs, ours] : kSame)
    if (!is_null(body, theirs)) chat[ours] = body.at(theirs);
  Ordered messages = Ordered::array();
  if (!is_null(body, "system"))
    messages.push_back(message("system", text_of(body.at("system"), where + ": system")));
  if (is_null(body, "messages") || !body.at("messages").is_array())
    fail(ErrorKind::refused, "{}: messages must be a list", where);
  for (size_t i = 0; i < body.at("messages").size(); ++i)
    add_message(body.at("messages").at(i), fmt::format("{}: message {}", where, i), messages);
  // The answer goes on with a text that the client has begun.
  if (!messages.empty() && messages.back().at("role") == "assistant" &&
      !messages.back().contains("tool_calls") && messages.back().at("content") != "")
    chat["continue_final_message"] = true;
  chat["messages"] = std::move(messages);
  if (!is_null(body, "tools")) chat["tools"] = function_tools(body.at("tools"), kCustomTool, where);
  if (!is_null(body, "tool_choice"))
    read_choice(body.at("tool_choice"), where + ": tool_choice", chat);
  read_output(body, where, chat);
  if (!is_null(body, "thinking")) {
    const bool thinks = string_of(body.at("thinking"), "type", where + ": thinking") != "disabled";
    chat["chat_template_kwargs"] = {{"enable_thinking", thinks}};
  }
  pass_on(body, chat);
  return chat.dump();
}

}  // namespace sluice
