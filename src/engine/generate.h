// One request from prompt to finished text.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/engine/logprobs.h"
#include "src/engine/runner.h"
#include "src/engine/sampler.h"
#include "src/engine/speculation.h"
#include "src/text/tokenizer.h"

namespace sluice {

struct GenerateRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  SamplingParams sampling;
  std::vector<std::string> stop;  // generation ends before the first of them
  std::vector<int32_t> eos_ids;   // empty: eos is ignored
  // Guess ahead and verify several tokens in one step: the same tokens, in fewer passes. As many as
  // the runner has logits rows.
  bool lookup = false;
  DraftModel* draft = nullptr;  // asked where lookup knows nothing
};

struct GenerateResult {
  std::vector<int32_t> ids;  // generated, with the eos or stop token that ended it
  std::string text;
  std::string finish_reason;            // "stop" (eos, a stop token or string), "length"
  std::vector<TokenLogprobs> logprobs;  // of each id, if SamplingParams asked for them
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of all tokens after the first
  uint64_t logits_hash = 0;   // XXH3-64 of the logits row that gave the last id
  int64_t steps = 0;          // passes over the model after the prompt's
  int64_t guessed = 0;        // tokens that were verified
  int64_t accepted = 0;       // of these
};

// Error(usage) for what no model could do: an empty prompt, unknown ids, sampling values out of
// range, stop strings without a tokenizer.
void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer);

// Prepared step by step, so that whoever shows the text can do so as it comes: `next()` until it
// returns nullopt.
class Generation {
 public:
  // `tokenizer` may be null: no text then, and stop strings are an Error(usage). Runner and
  // tokenizer outlive this.
  Generation(Runner& runner, const Tokenizer* tokenizer, GenerateRequest request);
  ~Generation();

  // The text that has become certain with the next token (may be empty); nullopt when finished.
  // Throws Error(runtime) when `stop` is requested.
  std::optional<std::string> next(std::stop_token stop);
  const GenerateResult& result() const { return result_; }

 private:
  struct Text;
  // A token that is certain, and what is to be told of the logits that gave it.
  struct Sampled {
    int32_t id = 0;
    uint64_t logits_hash = 0;
    std::optional<TokenLogprobs> logprobs;
  };
  int32_t next_id(std::stop_token stop);
  void sample(Tensor logits);
  bool ends_sequence(int32_t id) const;
  // A source of guesses, and how well it did.
  struct Source {
    GuessLength length;
    std::vector<int32_t> guesses;
    double seconds = 0;  // that they took
  };
  void decode_step(const std::stop_token& stop);
  Source* guess(const std::stop_token& stop);
  std::optional<std::string> end(std::string reason);

  Runner& runner_;
  GenerateRequest request_;
  Sequence sequence_;
  Sampler sampler_;
  std::vector<int32_t> history_;   // prompt and all tokens that are certain
  std::vector<float> raw_logits_;  // as the model gave them; only where logprobs are asked for
  PassCost cost_;
  Source lookup_;
  Source draft_;
  std::deque<Sampled> sampled_;  // and not yet returned
  std::unique_ptr<Text> text_;
  GenerateResult result_;
  bool finished_ = false;
};

// Mean negative log likelihood of each token after the first of its window; windows of `window`
// tokens, no overlap.
struct Perplexity {
  double perplexity = 0;
  int64_t tokens = 0;  // predicted
};
Perplexity evaluate(Runner& runner, std::span<const int32_t> ids, int64_t window,
                    std::stop_token stop);

uint64_t hash_logits(Tensor row);

// Error(usage) that names the first id outside [0, vocab_size).
void check_token_ids(std::span<const int32_t> ids, int64_t vocab_size);

}  // namespace sluice
