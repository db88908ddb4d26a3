#include "src/serve/apis/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/serve/apis/api_parts.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

// Names of both APIs.
constexpr std::array<SameName, 7> kSame{{{"max_tokens", "max_tokens"},
                                         {"model", "model"},
                                         {"stop_sequences", "stop"},
                                         {"stream", "stream"},
                                         {"temperature", "temperature"},
                                         {"top_k", "top_k"},
                                         {"top_p", "top_p"}}};
// Uses of tools that another service ran, and what it found: they say nothing to a model here. Nor
// do changes of the tools, which OfferedTools reads.
constexpr std::array<std::string_view, 14> kPassedOver{"redacted_thinking",
                                                       "advisor_tool_result",
                                                       "fallback",
                                                       "mcp_tool_listing",
                                                       "tool_addition",
                                                       "tool_removal",
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

OrderedJson message(const char* role, OrderedJson content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// The texts of a document or of what was found, behind its title.
std::string document_text(const OrderedJson& block, const std::string& where) {
  const bool document = block.at("type") == "document";
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& source = document && !is_null(block, "source") ? block.at("source") : none;
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
OrderedJson result_content(const OrderedJson& content, const std::string& where) {
  if (!content.is_array()) return content_of(content, where);
  OrderedJson texts = OrderedJson::array();
  for (const OrderedJson& block : content) {
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

  void add(const OrderedJson& block, OrderedJson& messages) {
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
                          {"arguments", block.value("input", OrderedJson::object())}}}});
    } else if (type == "tool_result" || type == "mcp_tool_result") {
      if (!calls_.empty()) finish(messages);
      OrderedJson result = message(
          "tool", is_null(block, "content") ? "" : result_content(block.at("content"), where_));
      result["tool_call_id"] = string_of(block, "tool_use_id", where_);
      messages.push_back(std::move(result));
      told_ = true;
    } else if (std::ranges::find(kPassedOver, type) == kPassedOver.end()) {
      fail(ErrorKind::refused, "{}: blocks of type {:?} are not supported; send text", where_,
           type);
    }
  }

  void finish(OrderedJson& messages) {
    if ((told_ || role_ == "system") && texts_.empty() && calls_.empty()) return;
    OrderedJson whole = message(role_.c_str(), content_of(texts_, where_));
    if (!thoughts_.empty()) whole["reasoning_content"] = thoughts_;
    if (!calls_.empty()) whole["tool_calls"] = calls_;
    messages.push_back(std::move(whole));
    texts_ = calls_ = OrderedJson::array();
    thoughts_.clear();
  }

 private:
  void add_text(std::string text) {
    texts_.push_back({{"type", "text"}, {"text", std::move(text)}});
  }

  std::string role_;
  std::string where_;
  OrderedJson texts_ = OrderedJson::array();
  std::string thoughts_;
  OrderedJson calls_ = OrderedJson::array();
  bool told_ = false;  // a tool's result
};

void add_message(const OrderedJson& given, const std::string& where, OrderedJson& messages) {
  const std::string role = string_of(given, "role", where);
  if (role != "user" && role != "assistant" && role != "system")
    fail(ErrorKind::refused, "{}: role must be user, assistant or system", where);
  if (is_null(given, "content")) fail(ErrorKind::refused, "{}: content is missing", where);
  const OrderedJson& content = given.at("content");
  if (!content.is_array()) {
    messages.push_back(message(role.c_str(), text_of(content, where)));
    return;
  }
  Blocks blocks(role, where);
  for (const OrderedJson& block : content) blocks.add(block, messages);
  blocks.finish(messages);
}

// A system message may be for the turn alone that it comes before.
bool is_over(const OrderedJson& messages, size_t at) {
  if (member(messages.at(at), "clear_at") != "next_user_message") return false;
  return std::any_of(messages.begin() + static_cast<ptrdiff_t>(at) + 1, messages.end(),
                     [](const OrderedJson& later) { return member(later, "role") == "user"; });
}

bool begins_with(const OrderedJson& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>().starts_with(text);
}

// Clients write who pays into a text of its own. It is no instruction, and where it changes, all
// that was computed of the prompt behind it is lost.
OrderedJson instructions_of(const OrderedJson& system) {
  if (!system.is_array()) return system;
  OrderedJson kept = OrderedJson::array();
  for (const OrderedJson& block : system) {
    if (!begins_with(member(block, "text"), "x-anthropic-billing-header:")) kept.push_back(block);
  }
  return kept;
}

// The tools that a model is told of: without those that are to be searched for until a result names
// them, and with what messages of the system have changed.
class OfferedTools {
 public:
  OfferedTools(const OrderedJson& body, std::string where) : where_(std::move(where)) {
    if (is_null(body, "tools")) return;
    const OrderedJson& tools = body.at("tools");
    if (!tools.is_array()) fail(ErrorKind::refused, "{}: tools must be a list", where_);
    // Whoever has another service search has no other way to them here.
    const bool searched = std::ranges::any_of(tools, [](const OrderedJson& tool) {
      return begins_with(member(tool, "type"), "tool_search_tool");
    });
    for (const OrderedJson& tool : tools) {
      const bool deferred = member(tool, "defer_loading") == true;
      tools_.push_back({tool, !deferred || searched});
    }
  }

  void read(const OrderedJson& message) {
    for (const OrderedJson& block : blocks_of(member(message, "content"))) {
      const std::string type = string_of(block, "type", where_);
      if (type == "tool_addition" || type == "tool_removal") {
        change(object_of(block, "tool", where_), type == "tool_addition");
      } else if (type == "tool_result") {
        for (const OrderedJson& found : blocks_of(member(block, "content")))
          if (member(found, "type") == "tool_reference")
            offer(string_of(found, "tool_name", where_), true);
      }
    }
  }

  OrderedJson take() const {
    OrderedJson offered = OrderedJson::array();
    for (const Tool& tool : tools_)
      if (tool.offered) offered.push_back(tool.given);
    return offered;
  }

 private:
  struct Tool {
    OrderedJson given;
    bool offered = true;
  };

  static const OrderedJson& blocks_of(const OrderedJson& content) {
    static const OrderedJson kNone = OrderedJson::array();
    return content.is_array() ? content : kNone;
  }

  // References to tools of other services are passed over.
  void change(const OrderedJson& tool, bool adds) {
    const std::string type = string_of(tool, "type", where_ + ": tool");
    if (type == "tool_reference") offer(string_of(tool, "name", where_ + ": tool"), adds);
    if (type != "tool_definition") return;
    OrderedJson definition = object_of(tool, "definition", where_ + ": tool");
    const OrderedJson name = member(definition, "name");
    std::erase_if(tools_, [&](const Tool& other) { return is_named(other, name); });
    tools_.push_back({std::move(definition), true});
  }

  void offer(const OrderedJson& name, bool offered) {
    for (Tool& tool : tools_)
      if (is_named(tool, name)) tool.offered = offered;
  }

  static bool is_named(const Tool& tool, const OrderedJson& name) {
    return name.is_string() && member(tool.given, "name") == name;
  }

  std::string where_;
  std::vector<Tool> tools_;
};

// "any" is OpenAI's "required"; "tool" names one.
void read_choice(const OrderedJson& given, const std::string& where, OrderedJson& chat) {
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

// Reads how much it may think, and the schema of its text: a member of its own in older clients.
void read_output(const OrderedJson& body, const std::string& where, OrderedJson& chat) {
  const OrderedJson config = object_of(body, "output_config", where);
  if (!is_null(config, "effort"))
    chat["reasoning_effort"] = string_of(config, "effort", where + ": output_config");
  const bool older = is_null(config, "format");
  if (older && is_null(body, "output_format")) return;
  chat["response_format"] =
      response_format(older ? body.at("output_format") : config.at("format"),
                      where + (older ? ": output_format" : ": output_config"));
}

}  // namespace

OrderedJson chat_of_messages(OrderedJson body, const std::string& where, bool generates) {
  if (!body.is_object()) fail(ErrorKind::refused, "{}: must be a JSON object", where);
  if (generates && is_null(body, "max_tokens"))
    fail(ErrorKind::refused, "{}: max_tokens is missing", where);
  OrderedJson chat = OrderedJson::object();
  move_same(body, kSame, chat);
  OrderedJson messages = OrderedJson::array();
  if (!is_null(body, "system"))
    messages.push_back(
        message("system", text_of(instructions_of(body.at("system")), where + ": system")));
  if (is_null(body, "messages") || !body.at("messages").is_array())
    fail(ErrorKind::refused, "{}: messages must be a list", where);
  OrderedJson& given = body.at("messages");
  OfferedTools tools(body, where);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!is_over(given, i))
      add_message(given.at(i), fmt::format("{}: message {}", where, i), messages);
    tools.read(given.at(i));
    given.at(i) = nullptr;  // so that there is one tree, about
  }
  // The answer goes on with a text that the client has begun.
  if (!messages.empty() && messages.back().at("role") == "assistant" &&
      !messages.back().contains("tool_calls") && messages.back().at("content") != "")
    chat["continue_final_message"] = true;
  chat["messages"] = std::move(messages);
  if (OrderedJson offered = tools.take(); !offered.empty())
    chat["tools"] = function_tools(offered, kCustomTool, where);
  if (!is_null(body, "tool_choice"))
    read_choice(body.at("tool_choice"), where + ": tool_choice", chat);
  read_output(body, where, chat);
  if (!is_null(body, "thinking")) {
    const bool thinks = string_of(body.at("thinking"), "type", where + ": thinking") != "disabled";
    chat["chat_template_kwargs"] = {{"enable_thinking", thinks}, {"thinking", thinks}};
  }
  pass_on(body, {kIgnored, kReadMembers}, chat);
  return chat;
}

}  // namespace sluice
