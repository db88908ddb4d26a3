// The answer of /v1/chat/completions.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/serve/apis/chunk_answer.h"
#include "src/serve/apis/ordered_json.h"
#include "src/serve/apis/token_text.h"

namespace sluice {
namespace {

class ChatAnswer : public ChunkAnswer {
 public:
  ChatAnswer(Completion asked, CompletionHead head, const Tokenizer* tokenizer, ChatForm form)
      : ChunkAnswer(std::move(asked), std::move(head), tokenizer, "chat.completion.chunk"),
        form_(std::move(form)) {
    if (streams()) choices_.resize(choices());
  }

  void begin(std::string& out) override {
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].emplace(Streamed{form_.parser()});
      delta(out, i, [](JsonWriter& json) {
        json.member("role", "assistant");
        json.member("content", "");
      });
    }
  }

  void finish(std::string& out) override {
    if (streams()) return finish_stream(out);
    append_json(out, [&](JsonWriter& json) {
      json.begin_object();
      write_head(json, "chat.completion");
      json.key("choices");
      json.array([&] {
        for (int64_t i = 0; i < asked_.request.n; ++i) write_choice(json, i);
      });
      json.key("usage");
      write_usage(json, usage());
      if (asked_.return_token_ids) write_ids(json, "prompt_token_ids", asked_.prompts[0]);
      json.end_object();
    });
  }

 protected:
  void stream(Choice choice, const StreamPart& part, std::string& out) override {
    const size_t index = number(choice);
    Streamed& streamed = *choices_[index];
    const std::vector<TokenLogprobs>* logprobs =
        asked_.request.sampling.logprobs && !part.logprobs.empty() ? &part.logprobs : nullptr;
    const std::vector<int32_t>* ids =
        asked_.return_token_ids && !part.ids.empty() ? &part.ids : nullptr;
    const bool last = part.result.has_value();
    for (AnswerPart& p : streamed.parser.add(part.text, last, last && is_cut(*part.result))) {
      if (p.kind == AnswerPart::Kind::call) {
        p.id = streamed.ids.of(p.id, call_id(streamed.calls, index));
        ++streamed.calls;
      }
      delta(
          out, index, [&](JsonWriter& json) { write_part(json, p, streamed.calls - 1); },
          std::exchange(logprobs, nullptr), std::exchange(ids, nullptr));
    }
    if (logprobs != nullptr || ids != nullptr)  // of a text that is not certain yet
      delta(out, index, [](JsonWriter& json) { json.member("content", ""); }, logprobs, ids);
    if (part.result) end(out, index, finish_reason(*part.result, streamed.calls > 0));
  }

 private:
  struct Streamed {
    AnswerParser parser;
    CallIds ids = {};
    int64_t calls = 0;
  };

  static std::string finish_reason(const RequestResult& result, bool calls) {
    return calls && result.finish_reason == "stop" ? "tool_calls" : result.finish_reason;
  }

  // The same for each call of an answer, and no other's.
  std::string call_id(int64_t call, size_t choice) const {
    return fmt::format("call_{}_{}_{}", head_.id.substr(head_.id.find('-') + 1), choice, call);
  }

  static void write_part(JsonWriter& json, const AnswerPart& part, int64_t call) {
    switch (part.kind) {
      case AnswerPart::Kind::reasoning:
      case AnswerPart::Kind::content:
        json.key(part.kind == AnswerPart::Kind::content ? "content" : "reasoning_content");
        return json.text({part.text});
      case AnswerPart::Kind::call:
        return json.member("tool_calls",
                           OrderedJson::array({OrderedJson{
                               {"index", call},
                               {"id", part.id},
                               {"type", "function"},
                               {"function", {{"name", part.text}, {"arguments", ""}}}}}));
      case AnswerPart::Kind::arguments:
        return json.member("tool_calls",
                           OrderedJson::array({OrderedJson{
                               {"index", call}, {"function", {{"arguments", part.text}}}}}));
    }
  }

  void write_choice(JsonWriter& json, int64_t index) const {
    const RequestResult& result = results_[0][static_cast<size_t>(index)];
    const ChatReply reply = chat_reply(form_, result);
    json.begin_object();
    json.member("index", index);
    json.key("message");
    json.begin_object();
    json.member("role", "assistant");
    json.key("content");
    if (reply.content.empty() && !reply.calls.empty()) {
      json.value(nullptr);
    } else {
      json.text({reply.content});
    }
    if (!reply.reasoning.empty()) {
      json.key("reasoning_content");
      json.text({reply.reasoning});
    }
    if (!reply.calls.empty()) json.member("tool_calls", calls_json(reply, index));
    json.end_object();
    json.key("logprobs");
    write_logprobs(json, asked_.request.sampling.logprobs ? &result.logprobs : nullptr);
    json.member("finish_reason", finish_reason(result, !reply.calls.empty()));
    if (asked_.return_token_ids) write_ids(json, "token_ids", result.ids);
    json.end_object();
  }

  OrderedJson calls_json(const ChatReply& reply, int64_t index) const {
    OrderedJson calls = OrderedJson::array();
    CallIds ids;
    for (const ChatReply::Call& call : reply.calls) {
      const std::string own = call_id(std::ssize(calls), static_cast<size_t>(index));
      calls.push_back({{"id", ids.of(call.id, own)},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return calls;
  }

  void write_logprobs(JsonWriter& json, const std::vector<TokenLogprobs>* logprobs) const {
    if (logprobs == nullptr) return json.value(nullptr);
    json.begin_object();
    json.key("content");
    json.array(*logprobs,
               [&](const TokenLogprobs& t) { json.value(token_logprobs_json(t, tokenizer_)); });
    json.end_object();
  }

  // An event with a piece of a choice.
  template <class Delta>
  void delta(std::string& out, size_t index, Delta write,
             const std::vector<TokenLogprobs>* logprobs = nullptr,
             const std::vector<int32_t>* ids = nullptr) const {
    chunk(out, [&](JsonWriter& json) {
      json.begin_object();
      json.member("index", index);
      json.key("delta");
      json.begin_object();
      write(json);
      json.end_object();
      json.key("logprobs");
      write_logprobs(json, logprobs);
      json.member("finish_reason", nullptr);
      if (ids != nullptr) write_ids(json, "token_ids", *ids);
      json.end_object();
    });
  }

  void end(std::string& out, size_t index, const std::string& reason) const {
    chunk(out, [&](JsonWriter& json) {
      json.value(OrderedJson{{"index", index},
                             {"delta", OrderedJson::object()},
                             {"logprobs", nullptr},
                             {"finish_reason", reason}});
    });
  }

  ChatForm form_;
  std::vector<std::optional<Streamed>> choices_;
};

}  // namespace

std::unique_ptr<Answer> chat_answer(Completion asked, CompletionHead head,
                                    const Tokenizer* tokenizer, ChatForm form) {
  return std::make_unique<ChatAnswer>(std::move(asked), std::move(head), tokenizer,
                                      std::move(form));
}

}  // namespace sluice
