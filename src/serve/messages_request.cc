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
// Uses of tools that another service ran, and what it found: they say nothing to a model here.
constexpr std::array<std::string_view, 9> kPassedOver{"redacted_thinking",
                                                      "server_tool_use",
                                                      "web_search_tool_result",
                                                      "web_fetch_tool_result",
                                                      "code_execution_tool_result",
                                                      "bash_code_execution_tool_result",
                                                      "text_editor_code_execution_tool_result",
                                                      "tool_search_tool_result",
                                                      "container_upload"};
// Say nothing about the answer, or only how another service would make it.
constexpr std::array<std::string_view, 6> kIgnored{
    "betas", "cache_control", "context_management", "inference_geo", "metadata", "service_tier"};
constexpr std::array<std::string_view, 7> kReadMembers{
    "messages", "output_config", "output_format", "system", "thinking", "tool_choice", "tools"};

Ordered message(const char* role, Ordered content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// The texts of a document or of what was found, behind its title.
std::string document_text(const Ordered& block, const std::string& where) {
  const bool document = block.at("type") == "document";
  const Ordered none = Ordered::object();
  const Ordered& source = document && !is_null(block, "source") ? block.at("source") : none;
  std::string text = is_null(block, "title") ? "" : string_of(block, "title", where) + "\n";
  if (!is_null(block, "context")) text += string_of(block, "context", where) + "\n";
  if (!document) return text + text_of(block.at("content"), where);
  const std::string type = string_of(source, "type", where + ": source");
  if (type == "text") return text + string_of(source, "data", where + ": source");
  if (type == "content" && !is_null(source, "content"))
    return text + text_of(source.at("content"), where + ": source");
  fail(ErrorKind::refused, "{}: documents of type {:?} are not supported; send the document's text",
       where, type);
}

// Returns a tool's result: its texts, and the names of tools that a search found.
Ordered result_content(const Ordered& content, const std::string& where) {
  if (!content.is_array()) return content_of(content, where);
  Ordered texts = Ordered::array();
  for (const Ordered& block : content) {
    const std::string type = string_of(block, "type", where);
    if (type == "tool_reference") {
      texts.push_back({{"type", "text"}, {"text", string_of(block, "tool_name", where)}});
    } else if (type == "document" || (type == "search_result" && !is_null(block, "content"))) {
      texts.push_back({{"type", "text"}, {"text", document_text(block, where)}});
    } else {
      texts.push_back(block);
    }
  }
  return content_of(texts, where);
}

// Turns a message of blocks into messages of a chat: results of tools have their own.
class Blocks {
 public:
  Blocks(std::string role, std::string where) : role_(std::move(role)), where_(std::move(where)) {}

  void add(const Ordered& block, Ordered& messages) {
    const std::string type = string_of(block, "type", where_);
    if (type == "text") {
      add_text(string_of(block, "text", where_));
    } else if (type == "compaction" && !is_null(block, "content")) {
      add_text(text_of(block.at("content"), where_));
    } else if (type == "document" || (type == "search_result" && !is_null(block, "content"))) {
      add_text(document_text(block, where_));
    } else if (type == "thinking") {
      thoughts_ += string_of(block, "thinking", where_);
    } else if (type == "tool_use" || type == "mcp_tool_use") {
      calls_.push_back({{"id", string_of(block, "id", where_)},
                        {"type", "function"},
                        {"function",
                         {{"name", string_of(block, "name", where_)},
                          {"arguments", block.value("input", Ordered::object())}}}});
    } else if (type == "tool_result" || type == "mcp_tool_result") {
      if (!calls_.empty()) finish(messages);
      Ordered result = message(
          "tool", is_null(block, "content") ? "" : result_content(block.at("content"), where_));
      result["tool_call_id"] = string_of(block, "tool_use_id", where_);
      messages.push_back(std::move(result));
      told_ = true;
    } else if (std::ranges::find(kPassedOver, type) == kPassedOver.end()) {
      fail(ErrorKind::refused, "{}: blocks of type {:?} are not supported", where_, type);
    }
  }

  void finish(Ordered& messages) {
    if (told_ && texts_.empty() && calls_.empty()) return;
    Ordered whole = message(role_.c_str(), content_of(texts_, where_));
    if (!thoughts_.empty()) whole["reasoning_content"] = thoughts_;
    if (!calls_.empty()) whole["tool_calls"] = calls_;
    messages.push_back(std::move(whole));
    texts_ = calls_ = Ordered::array();
    thoughts_.clear();
  }

 private:
  void add_text(std::string text) {
    texts_.push_back({{"type", "text"}, {"text", std::move(text)}});
  }

  std::string role_;
  std::string where_;
  Ordered texts_ = Ordered::array();
  std::string thoughts_;
  Ordered calls_ = Ordered::array();
  bool told_ = false;  // a tool's result
};

void add_message(const Ordered& given, const std::string& where, Ordered& messages) {
  const std::string role = string_of(given, "role", where);
  if (role != "user" && role != "assistant" && role != "system")
    fail(ErrorKind::refused, "{}: role must be user, assistant or system", where);
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
  refuse_large_integers(text, where);
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
    chat["chat_template_kwargs"] = {{"enable_thinking", thinks}, {"thinking", thinks}};
  }
  pass_on(body, chat);
  return chat.dump();
}

}  // namespace sluice
