// The answer of /v1/responses: items of thoughts, a message and calls.
#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/serve/apis/answer.h"
#include "src/serve/apis/api_parts.h"
#include "src/serve/apis/message_tokens.h"
#include "src/serve/apis/ordered_json.h"
#include "src/serve/apis/token_text.h"

namespace sluice {
namespace {

class ResponsesAnswer : public Answer {
 public:
  ResponsesAnswer(Completion asked, CompletionHead head, const Tokenizer* tokenizer, ChatForm form)
      : Answer(std::move(asked), std::move(head), tokenizer),
        form_(std::move(form)),
        parser_(form_.parser()),
        tokens_(tokenizer, asked_.request.skip_special_tokens) {}

  void begin(std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      event(out, type, [&](JsonWriter& json) {
        json.key("response");
        write_response(json, "in_progress", nullptr);
      });
    }
  }

  void finish(std::string& out) override {
    const RequestResult& result = results_[0][0];
    if (!streams()) {
      const ChatReply reply = chat_reply(form_, result);
      if (!reply.reasoning.empty()) add_item(reasoning_item(reply.reasoning));
      if (!reply.content.empty() || reply.calls.empty()) {
        if (tells_logprobs() && !reply.content.empty())
          logprobs_ = message_tokens(form_, result, tokenizer_, asked_.request.skip_special_tokens);
        add_item(message_item(reply.content, "completed"));
      }
      for (const ChatReply::Call& call : reply.calls)
        add_item(call_item(call.name, call_id(call.id), call.arguments, "completed"));
      // The last one is what was cut.
      if (items_.back().contains("status")) items_.back()["status"] = status_of(result);
      return append_json(
          out, [&](JsonWriter& json) { write_response(json, status_of(result), &result); });
    }
    const std::string status = status_of(result);
    end_item(out, status.c_str());
    event(out, ("response." + status).c_str(), [&](JsonWriter& json) {
      json.key("response");
      write_response(json, status, &result);
    });
  }

  void fail(const Refusal& why, std::string& out) const override {
    append_event(
        out,
        [&](JsonWriter& json) {
          json.value({{"type", "error"},
                      {"code", why.code.empty() ? Json("server_error") : Json(why.code)},
                      {"message", why.what()},
                      {"param", nullptr},
                      {"sequence_number", sequence_}});
        },
        "error");
  }

 protected:
  void stream(Choice, const StreamPart& part, std::string& out) override {
    const bool last = part.result.has_value();
    if (tells_logprobs()) tokens_.add(part.logprobs, part.text);
    for (const AnswerPart& p : parser_.add(part.text, last, last && is_cut(*part.result))) {
      if (p.kind != AnswerPart::Kind::content) tokens_.drop();
      if (p.kind == AnswerPart::Kind::arguments) {
        text_ += p.text;
        delta(out, "response.function_call_arguments.delta", p.text);
        continue;
      }
      const bool begins = !open_ || p.kind != kind_ || p.kind == AnswerPart::Kind::call;
      if (begins) {
        end_item(out, "completed");
        begin_item(p, out);
      }
      if (p.kind == AnswerPart::Kind::call) continue;
      text_ += p.text;
      if (p.kind == AnswerPart::Kind::reasoning) {
        delta(out, "response.reasoning_text.delta", p.text);
        continue;
      }
      std::vector<TokenLogprobs> tokens = tokens_.take(p.text, begins);
      delta(out, "response.output_text.delta", p.text, &tokens);
      std::ranges::move(tokens, std::back_inserter(logprobs_));
    }
  }

 private:
  static const char* status_of(const RequestResult& result) {
    return result.finish_reason == "length" ? "incomplete" : "completed";
  }
  std::string number() const { return head_.id.substr(head_.id.find('_') + 1); }
  std::string item_id(const char* kind) const {
    return fmt::format("{}_{}_{}", kind, number(), items_.size());
  }
  OrderedJson reasoning_item(const std::string& text) const {
    OrderedJson content = OrderedJson::array();
    if (!text.empty()) content.push_back(OrderedJson{{"type", "reasoning_text"}, {"text", text}});
    return {{"type", "reasoning"},
            {"id", item_id("rs")},
            {"summary", OrderedJson::array()},
            {"content", content}};
  }
  bool tells_logprobs() const { return asked_.request.sampling.logprobs.has_value(); }
  void write_logprobs(JsonWriter& json, std::span<const TokenLogprobs> tokens) const {
    json.key("logprobs");
    json.array(tokens, [&](const TokenLogprobs& token) {
      json.value(token_logprobs_json(token, tokenizer_));
    });
  }
  // Logprobs may be large: their JSON is written, not kept.
  void write_text_part(JsonWriter& json, const OrderedJson& part,
                       std::span<const TokenLogprobs> tokens) const {
    json.begin_object();
    for (const auto& [name, value] : part.items()) json.member(name, value);
    write_logprobs(json, tokens);
    json.end_object();
  }
  void write_item(JsonWriter& json, const OrderedJson& item,
                  std::span<const TokenLogprobs> tokens) const {
    if (item.at("type") != "message") return json.value(item);
    json.begin_object();
    for (const auto& [name, value] : item.items()) {
      json.key(name);
      if (name != "content") {
        json.value(value);
        continue;
      }
      json.array(value, [&](const OrderedJson& part) { write_text_part(json, part, tokens); });
    }
    json.end_object();
  }
  // Ends an item, whose tokens are in `logprobs_`.
  void add_item(OrderedJson item) {
    items_.push_back(std::move(item));
    of_items_.resize(items_.size());
    of_items_.back() = std::exchange(logprobs_, {});
  }
  static OrderedJson text_part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}};
  }
  OrderedJson message_item(const std::string& text, const char* status) const {
    OrderedJson content = OrderedJson::array();
    if (status != std::string_view("in_progress")) content.push_back(text_part(text));
    return {{"type", "message"},
            {"id", item_id("msg")},
            {"status", status},
            {"role", "assistant"},
            {"content", content}};
  }
  std::string call_id(const std::string& written) { return ids_.of(written, item_id("call")); }
  OrderedJson call_item(const std::string& name, const std::string& call_id,
                        const std::string& arguments, const char* status) const {
    const std::string space = space_of(name);
    const size_t prefix = space.empty() ? 0 : name_in(space, "").size();
    OrderedJson item{{"type", "function_call"},     {"id", item_id("fc")},    {"call_id", call_id},
                     {"name", name.substr(prefix)}, {"arguments", arguments}, {"status", status}};
    if (!space.empty()) item["namespace"] = space;
    return item;
  }

  // The namespace of a function, if it has one.
  std::string space_of(const std::string& name) const {
    for (const Json& tool : form_.tools) {
      const Json& function = tool.at("function");
      if (function.at("name") == name) return function.value("namespace", "");
    }
    return {};
  }

  // Members of a tool stand in the tool itself here, and in an object of their own in chat
  // completions.
  static OrderedJson flat(const Json& tool) {
    if (!tool.is_object() || !tool.contains("function") || !tool.at("function").is_object())
      return OrderedJson(tool);
    OrderedJson same{{"type", "function"}};
    for (const char* first : {"name", "description", "parameters"})
      if (tool.at("function").contains(first)) same[first] = tool.at("function").at(first);
    same.update(OrderedJson(tool.at("function")));
    return same;
  }
  OrderedJson tools_json() const {
    OrderedJson tools = OrderedJson::array();
    for (const Json& tool : form_.tools) tools.push_back(flat(tool));
    return tools;
  }
  OrderedJson choice_json() const {
    const Json& choice = form_.tool_choice;
    if (!choice.is_object() || !choice.contains("allowed_tools")) return flat(choice);
    const Json& allowed = choice.at("allowed_tools");
    OrderedJson tools = OrderedJson::array();
    for (const Json& tool : allowed.at("tools")) tools.push_back(flat(tool));
    return {{"type", "allowed_tools"}, {"mode", allowed.at("mode")}, {"tools", std::move(tools)}};
  }

  // {type: TYPE, sequence_number, ...}
  template <class Write>
  void event(std::string& out, const char* type, Write write) {
    append_event(
        out,
        [&](JsonWriter& json) {
          json.begin_object();
          json.member("type", type);
          json.member("sequence_number", sequence_++);
          write(json);
          json.end_object();
        },
        type);
  }

  void name_item(JsonWriter& json) const {
    json.member("item_id", item_.at("id"));
    json.member("output_index", items_.size());
    if (kind_ != AnswerPart::Kind::call) json.member("content_index", 0);
  }

  void begin_item(const AnswerPart& part, std::string& out) {
    open_ = true;
    kind_ = part.kind;
    text_.clear();
    if (kind_ == AnswerPart::Kind::reasoning) item_ = reasoning_item({});
    if (kind_ == AnswerPart::Kind::content) item_ = message_item({}, "in_progress");
    if (kind_ == AnswerPart::Kind::call)
      item_ = call_item(part.text, call_id(part.id), {}, "in_progress");
    event(out, "response.output_item.added", [&](JsonWriter& json) {
      json.member("output_index", items_.size());
      json.member("item", item_);
    });
    if (kind_ != AnswerPart::Kind::content) return;
    event(out, "response.content_part.added", [&](JsonWriter& json) {
      name_item(json);
      json.key("part");
      write_text_part(json, text_part({}), {});
    });
  }

  void delta(std::string& out, const char* type, const std::string& text,
             const std::vector<TokenLogprobs>* tokens = nullptr) {
    event(out, type, [&](JsonWriter& json) {
      name_item(json);
      json.key("delta");
      json.text({text});
      if (tokens != nullptr) write_logprobs(json, *tokens);
    });
  }

  void end_item(std::string& out, const char* status) {
    if (!std::exchange(open_, false)) return;
    const bool calls = kind_ == AnswerPart::Kind::call,
               thinks = kind_ == AnswerPart::Kind::reasoning;
    event(out,
          calls    ? "response.function_call_arguments.done"
          : thinks ? "response.reasoning_text.done"
                   : "response.output_text.done",
          [&](JsonWriter& json) {
            name_item(json);
            if (calls) json.member("name", item_.at("name"));
            json.key(calls ? "arguments" : "text");
            json.text({text_});
            if (!calls && !thinks) write_logprobs(json, logprobs_);
          });
    if (!calls && !thinks) {
      event(out, "response.content_part.done", [&](JsonWriter& json) {
        name_item(json);
        json.key("part");
        write_text_part(json, text_part(text_), logprobs_);
      });
    }
    if (calls) {
      item_["arguments"] = text_;
      item_["status"] = status;
    } else {
      item_ = thinks ? reasoning_item(text_) : message_item(text_, status);
    }
    event(out, "response.output_item.done", [&](JsonWriter& json) {
      json.member("output_index", items_.size());
      json.key("item");
      write_item(json, item_, logprobs_);
    });
    add_item(std::move(item_));
  }

  void write_items(JsonWriter& json) const {
    json.array([&] {
      for (size_t i = 0; i < items_.size(); ++i) write_item(json, items_[i], of_items_[i]);
    });
  }

  // Null: it has not ended.
  void write_response(JsonWriter& json, const std::string& status,
                      const RequestResult* result) const {
    const SamplingParams& sampling = asked_.request.sampling;
    OrderedJson usage;
    if (result != nullptr) {
      const size_t prompt = asked_.prompts[0].size(), answer = result->ids.size();
      usage = {{"input_tokens", prompt},
               {"input_tokens_details",
                {{"cached_tokens", result->prefix_tokens}, {"cache_write_tokens", 0}}},
               {"output_tokens", answer},
               {"output_tokens_details", {{"reasoning_tokens", 0}}},
               {"total_tokens", prompt + answer}};
    }
    const bool cut = status == "incomplete";
    OrderedJson response{
        {"id", head_.id},
        {"object", "response"},
        {"created_at", head_.created},
        {"status", status},
        {"error", nullptr},
        {"incomplete_details", cut ? OrderedJson{{"reason", "max_output_tokens"}} : OrderedJson()},
        {"model", head_.model},
        {"output", nullptr},
        {"parallel_tool_calls", form_.parallel_calls},
        {"temperature", sampling.temperature},
        {"tool_choice", choice_json()},
        {"tools", tools_json()},
        {"top_p", sampling.top_p},
        {"usage", usage}};
    response.update(OrderedJson(form_.echo));
    json.begin_object();
    for (const auto& [name, value] : response.items()) {
      json.key(name);
      if (name == "output") {
        write_items(json);
      } else {
        json.value(value);
      }
    }
    json.end_object();
  }

  ChatForm form_;
  AnswerParser parser_;
  OrderedJson items_ = OrderedJson::array();  // that have ended
  std::vector<std::vector<TokenLogprobs>> of_items_;
  std::vector<TokenLogprobs> logprobs_;  // of the message that has not ended
  MessageTokens tokens_;
  CallIds ids_;
  // State of a stream: the item that has begun.
  bool open_ = false;
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;
  OrderedJson item_;
  std::string text_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Answer> responses_answer(Completion asked, CompletionHead head,
                                         const Tokenizer* tokenizer, ChatForm form) {
  return std::make_unique<ResponsesAnswer>(std::move(asked), std::move(head), tokenizer,
                                           std::move(form));
}

}  // namespace sluice
