// The answer of /v1/messages: blocks of thoughts, texts and calls.
#include <string>
#include <utility>

#include "src/serve/apis/answer.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

class MessagesAnswer : public Answer {
 public:
  MessagesAnswer(Completion asked, CompletionHead head, const Tokenizer* tokenizer, ChatForm form)
      : Answer(std::move(asked), std::move(head), tokenizer),
        form_(std::move(form)),
        parser_(form_.parser()) {}

  void begin(std::string& out) override {
    event(out, "message_start", [&](JsonWriter& json) {
      json.key("message");
      write_message(json, {}, nullptr, 0);
    });
  }

  void finish(std::string& out) override {
    const RequestResult& result = results_[0][0];
    if (!streams()) {
      const ChatReply reply = chat_reply(form_, result);
      return append_json(out, [&](JsonWriter& json) {
        write_message(json, reply, &result, std::ssize(result.ids));
      });
    }
    end_block(out);
    event(out, "message_delta", [&](JsonWriter& json) {
      json.member("delta", ending_json(&result, calls_ > 0));
      json.member("usage", usage_json(&result, std::ssize(result.ids)));
    });
    event(out, "message_stop", [](JsonWriter&) {});
  }

  void fail(const Refusal& why, std::string& out) const override {
    append_event(
        out, [&](JsonWriter& json) { json.value(refusal_json(Dialect::anthropic, why)); }, "error");
  }

 protected:
  void stream(Choice, const StreamPart& part, std::string& out) override {
    const bool last = part.result.has_value();
    for (const AnswerPart& p : parser_.add(part.text, last, last && is_cut(*part.result))) {
      const bool goes_on = open_ && p.kind == kind_ && p.kind != AnswerPart::Kind::call;
      const bool of_call = open_ && p.kind == AnswerPart::Kind::arguments;
      if (!goes_on && !of_call) {
        end_block(out);
        begin_block(p, out);
      }
      if (p.kind != AnswerPart::Kind::call) delta(p, out);
    }
  }

 private:
  std::string call_id(int64_t call) const {
    return fmt::format("toolu_{}_{}", head_.id.substr(head_.id.find('_') + 1), call);
  }

  // {type: NAME, ...}
  template <class Write>
  static void event(std::string& out, const char* name, Write write) {
    append_event(
        out,
        [&](JsonWriter& json) {
          json.begin_object();
          json.member("type", name);
          write(json);
          json.end_object();
        },
        name);
  }

  void begin_block(const AnswerPart& part, std::string& out) {
    open_ = true;
    kind_ = part.kind;
    OrderedJson block{{"type", "text"}, {"text", ""}};
    if (part.kind == AnswerPart::Kind::reasoning)
      block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (part.kind == AnswerPart::Kind::call) {
      block = {{"type", "tool_use"},
               {"id", ids_.of(part.id, call_id(calls_))},
               {"name", part.text},
               {"input", OrderedJson::object()}};
      ++calls_;
    }
    event(out, "content_block_start", [&](JsonWriter& json) {
      json.member("index", block_);
      json.member("content_block", block);
    });
  }

  void delta(const AnswerPart& part, std::string& out) const {
    const bool thinks = part.kind == AnswerPart::Kind::reasoning;
    const bool argues = part.kind == AnswerPart::Kind::arguments;
    event(out, "content_block_delta", [&](JsonWriter& json) {
      json.member("index", block_);
      json.key("delta");
      json.begin_object();
      json.member("type", thinks ? "thinking_delta" : argues ? "input_json_delta" : "text_delta");
      json.key(thinks ? "thinking" : argues ? "partial_json" : "text");
      json.text({part.text});
      json.end_object();
    });
  }

  void end_block(std::string& out) {
    if (!std::exchange(open_, false)) return;
    event(out, "content_block_stop", [&](JsonWriter& json) { json.member("index", block_); });
    ++block_;
  }

  void write_blocks(JsonWriter& json, const ChatReply& reply) const {
    if (!reply.reasoning.empty()) {
      json.value(
          OrderedJson{{"type", "thinking"}, {"thinking", reply.reasoning}, {"signature", ""}});
    }
    if (!reply.content.empty() || reply.calls.empty())
      json.value(OrderedJson{{"type", "text"}, {"text", reply.content}});
    int64_t calls = 0;
    CallIds ids;
    for (const ChatReply::Call& call : reply.calls) {
      json.begin_object();
      json.member("type", "tool_use");
      json.member("id", ids.of(call.id, call_id(calls++)));
      json.member("name", call.name);
      json.key("input");
      // Arguments stay as the model wrote them: a client sends them back, and they are found in the
      // cache.
      json.raw(Json::parse(call.arguments, nullptr, false).is_object() ? call.arguments : "{}");
      json.end_object();
    }
  }

  // Null: it has not ended.
  OrderedJson ending_json(const RequestResult* result, bool calls) const {
    OrderedJson ending{{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
    if (result == nullptr) return ending;
    if (result->finish_reason == "length") {
      ending["stop_reason"] = "max_tokens";
    } else if (calls) {
      ending["stop_reason"] = "tool_use";
    } else if (result->stop.empty()) {
      ending["stop_reason"] = "end_turn";
    } else {
      ending["stop_reason"] = "stop_sequence";
      ending["stop_sequence"] = result->stop;
    }
    return ending;
  }

  void write_message(JsonWriter& json, const ChatReply& reply, const RequestResult* result,
                     int64_t tokens) const {
    json.begin_object();
    json.member("id", head_.id);
    json.member("type", "message");
    json.member("role", "assistant");
    json.member("model", head_.model);
    json.key("content");
    json.array([&] {
      if (result != nullptr) write_blocks(json, reply);
    });
    const OrderedJson ending = ending_json(result, !reply.calls.empty());
    for (const auto& [key, value] : ending.items()) json.member(key, value);
    json.member("usage", usage_json(result, tokens));
    json.end_object();
  }

  // Before the end it is not known how much was found.
  OrderedJson usage_json(const RequestResult* result, int64_t tokens) const {
    const int64_t cached = result != nullptr ? result->prefix_tokens : 0;
    return {{"input_tokens", std::ssize(asked_.prompts[0]) - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", tokens}};
  }

  ChatForm form_;
  AnswerParser parser_;
  // State of a stream.
  bool open_ = false;  // a block has begun
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;
  int64_t block_ = 0;
  int64_t calls_ = 0;
  CallIds ids_;
};

}  // namespace

std::unique_ptr<Answer> messages_answer(Completion asked, CompletionHead head,
                                        const Tokenizer* tokenizer, ChatForm form) {
  return std::make_unique<MessagesAnswer>(std::move(asked), std::move(head), tokenizer,
                                          std::move(form));
}

}  // namespace sluice
