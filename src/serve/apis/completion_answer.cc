// The answer of /v1/completions.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/serve/apis/chunk_answer.h"
#include "src/serve/apis/token_text.h"

namespace sluice {
namespace {

class CompletionAnswer : public ChunkAnswer {
 public:
  CompletionAnswer(Completion asked, CompletionHead head, const Tokenizer* tokenizer)
      : ChunkAnswer(std::move(asked), std::move(head), tokenizer, "text_completion") {}

  void finish(std::string& out) override {
    if (streams()) return finish_stream(out);
    append_json(out, [&](JsonWriter& json) {
      write_completion(json, head_, asked_, std::move(results_), tokenizer_);
    });
  }

 protected:
  void stream(Choice choice, const StreamPart& part, std::string& out) override {
    std::string begin;
    if (offsets_.empty()) offsets_.resize(choices());
    std::optional<TextOffsets>& offsets = offsets_[number(choice)];
    if (!offsets) {
      if (asked_.echo && tokenizer_ != nullptr) {
        begin =
            tokenizer_->decode(asked_.prompts[choice.prompt], asked_.request.skip_special_tokens);
      }
      offsets.emplace(tokenizer_, asked_.request.skip_special_tokens,
                      static_cast<int64_t>(character_count(begin)));
    }
    const bool ids = asked_.return_token_ids && !part.ids.empty();
    if (begin.empty() && part.text.empty() && part.logprobs.empty() && !ids && !part.result) return;
    chunk(out, [&](JsonWriter& json) { write_choice(json, choice, begin, part, *offsets); });
  }

 private:
  void write_choice(JsonWriter& json, Choice choice, const std::string& begin,
                    const StreamPart& part, TextOffsets& offsets) const {
    json.begin_object();
    json.member("index", number(choice));
    json.key("text");
    json.text({begin, part.text});
    json.key("logprobs");
    write_logprobs(json, part, offsets);
    json.member("finish_reason", part.result ? Json(part.result->finish_reason) : Json());
    if (asked_.return_token_ids) write_ids(json, "token_ids", part.ids);
    json.end_object();
  }

  void write_logprobs(JsonWriter& json, const StreamPart& part, TextOffsets& offsets) const {
    if (!asked_.request.sampling.logprobs) return json.value(nullptr);
    Json lists{{"text_offset", Json::array()},
               {"token_logprobs", Json::array()},
               {"tokens", Json::array()},
               {"top_logprobs", Json::array()}};
    for (const TokenLogprobs& t : part.logprobs) {
      lists["text_offset"].push_back(offsets.add(t.token.token_id));
      lists["token_logprobs"].push_back(t.token.logprob);
      lists["tokens"].push_back(token_text(t.token.token_id, tokenizer_));
      lists["top_logprobs"].push_back(top_logprobs_json(&t, tokenizer_));
    }
    json.value(lists);
  }

  std::vector<std::optional<TextOffsets>> offsets_;  // of each choice; none: it has not begun
};

}  // namespace

std::unique_ptr<Answer> completion_answer(Completion asked, CompletionHead head,
                                          const Tokenizer* tokenizer) {
  return std::make_unique<CompletionAnswer>(std::move(asked), std::move(head), tokenizer);
}

}  // namespace sluice
