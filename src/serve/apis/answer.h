// The answer to a request that generates, while its tokens come: bytes for its client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json_writer.h"
#include "src/engine/engine_loop.h"
#include "src/serve/apis/chat_parts.h"
#include "src/serve/apis/completion.h"
#include "src/serve/refusal.h"

namespace sluice {

class Answer {
 public:
  // The tokenizer may be null, else it outlives this.
  Answer(Completion asked, CompletionHead head, const Tokenizer* tokenizer);
  virtual ~Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  const Completion& asked() const { return asked_; }
  bool streams() const { return asked_.stream; }

  // Appends the first events of a stream to `out`.
  virtual void begin(std::string& /*out*/) {}
  // Takes a part of the index-th continuation of a prompt. A stream's events are appended.
  void take(size_t prompt, int64_t index, StreamPart part, std::string& out);
  bool done() const { return left_ == 0; }
  // Why a continuation has no tokens, or no further ones; empty: all have.
  const std::string& error() const { return error_; }
  // After the last one, without an error: appends the whole body, or the end of the stream.
  virtual void finish(std::string& out) = 0;
  // Appends the event that ends a stream that has failed.
  virtual void fail(const Refusal& why, std::string& out) const;

  const std::vector<std::vector<RequestResult>>& results() const { return results_; }
  Usage usage() const;  // of what has ended; before finish()

 protected:
  // The number of a choice in all of the answer, as its prompt and index have it.
  struct Choice {
    size_t prompt = 0;
    int64_t index = 0;
  };
  size_t number(Choice choice) const {
    return choice.prompt * static_cast<size_t>(asked_.request.n) +
           static_cast<size_t>(choice.index);
  }
  size_t choices() const { return asked_.prompts.size() * static_cast<size_t>(asked_.request.n); }
  // Appends the events of a part.
  virtual void stream(Choice choice, const StreamPart& part, std::string& out) = 0;

  Completion asked_;
  CompletionHead head_;
  const Tokenizer* tokenizer_;
  std::vector<std::vector<RequestResult>> results_;

 private:
  size_t left_;
  std::string error_;
};

// An event of a stream (Server-Sent Events) with one line of JSON, which write(json) makes.
template <class Write>
void append_event(std::string& out, Write write, std::string_view name = {}) {
  if (!name.empty()) (out += "event: ").append(name) += '\n';
  out += "data: ";
  append_json(out, write, "\n\n");
}
inline constexpr std::string_view kStreamDone = "data: [DONE]\n\n";

// Makes the answer of /v1/completions, /v1/chat/completions, /v1/messages and /v1/responses. The
// last two have one prompt and one choice.
std::unique_ptr<Answer> completion_answer(Completion asked, CompletionHead head,
                                          const Tokenizer* tokenizer);
std::unique_ptr<Answer> chat_answer(Completion asked, CompletionHead head,
                                    const Tokenizer* tokenizer, ChatForm form);
std::unique_ptr<Answer> messages_answer(Completion asked, CompletionHead head,
                                        const Tokenizer* tokenizer, ChatForm form);
std::unique_ptr<Answer> responses_answer(Completion asked, CompletionHead head,
                                         const Tokenizer* tokenizer, ChatForm form);

}  // namespace sluice
