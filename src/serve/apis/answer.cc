#include "src/serve/apis/answer.h"

#include <utility>

#include "src/base/check.h"

namespace sluice {

Answer::Answer(Completion asked, CompletionHead head, const Tokenizer* tokenizer)
    : asked_(std::move(asked)),
      head_(std::move(head)),
      tokenizer_(tokenizer),
      results_(asked_.prompts.size()),
      left_(choices()) {
  for (std::vector<RequestResult>& of_prompt : results_)
    of_prompt.resize(static_cast<size_t>(asked_.request.n));
}

void Answer::take(size_t prompt, int64_t index, StreamPart part, std::string& out) {
  if (part.result && part.result->finish_reason == "error") {
    error_ = part.result->error;
    return;
  }
  if (streams()) stream({prompt, index}, part, out);
  if (!part.result) return;
  check(left_ > 0, "a continuation has ended twice");
  --left_;
  results_[prompt][static_cast<size_t>(index)] = *std::move(part.result);
}

void Answer::fail(const Refusal& why, std::string& out) const {
  append_event(out, [&](JsonWriter& json) { json.value(refusal_json(Dialect::openai, why)); });
}

Usage Answer::usage() const {
  Usage usage{.cached_tokens = 0};
  for (size_t i = 0; i < asked_.prompts.size(); ++i)
    usage.add(std::ssize(asked_.prompts[i]), results_[i]);
  return usage;
}

}  // namespace sluice
