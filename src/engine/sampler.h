// From logits to the next token. Deterministic: the same logits, history, parameters and random
// state give the same token.
//
// The order is that of transformers' generate(), and of vLLM where transformers has no such thing:
//   1. what drops tokens or adds to them: the grammar, allowed_token_ids, banned_token_ids,
//      min_tokens, logit_bias
//   2. penalties: repetition (prompt and continuation), presence and frequency (continuation)
//   3. no_repeat_ngram_size (prompt and continuation)
//   4. with temperature 0: the largest logit. Else temperature, top_k, top_p, min_p, typical_p,
//      each on what the one before has left, and a random number
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <random>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/error.h"
#include "src/engine/logits_processors.h"
#include "src/engine/sampling_params.h"

namespace sluice {

// Thrown if no token can be sampled from a row: the request leaves none, or the logits are not
// finite. Other rows are not affected.
class SamplingError : public Error {
 public:
  using Error::Error;
};

// Throws SamplingError where a row's largest logit, or what comes of it, is infinite or a NaN.
void check_finite_logits(double largest);

// A token that may be drawn.
struct TokenProbability {
  int32_t id = 0;
  float logit = 0;  // processed, over the temperature
  double probability = 0;
};

class Sampler {
 public:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // its probability over the likeliest one's
  };
  // Scratch memory without meaning between calls; samplers of one thread may share it.
  struct Scratch {
    explicit Scratch(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
        : counter(memory), candidates(memory), raw_logits(memory) {}
    // Reserves for rows of `vocab_size` tokens, which takes bytes(vocab_size) of its memory.
    void reserve(int64_t vocab_size);
    static uint64_t bytes(int64_t vocab_size);

    TokenCounter counter;
    std::pmr::vector<Candidate> candidates;
    std::pmr::vector<float> raw_logits;  // for use after sample() has changed the row
  };
  // Returns whether a sampler with these parameters uses scratch.
  static bool needs_scratch(const SamplingParams& params);

  // `eos_ids`: what min_tokens drops beside the stop_token_ids. `scratch`: null where it is not
  // needed.
  explicit Sampler(const SamplingParams& params, std::vector<int32_t> eos_ids = {},
                   std::shared_ptr<Scratch> scratch = std::make_shared<Scratch>());

  // Changes the row. Throws Error(runtime) when it holds a NaN or nothing finite, or when no token
  // is left.
  int32_t sample(std::span<float> logits, const TokenHistory& history);

  // Returns whether the next token is the likeliest of the row as the model computed it. take()
  // then returns what sample() would, errors included.
  bool takes_likeliest(const TokenHistory& history) const;
  static int32_t take(const TokenLogit& likeliest);
  // Do the same for the `known` largest logits and those equal to the last, in any order.
  bool takes_top(const TokenHistory& history, int64_t known) const;
  int32_t sample_top(std::span<TokenLogit> top);

  // Every token that is not dropped, in no order; those that sample() draws with these
  // probabilities. Changes the row, draws nothing.
  std::vector<TokenProbability> distribution(std::span<float> logits, const TokenHistory& history);

 private:
  int32_t process(std::span<float> logits, const TokenHistory& history);
  bool changes_logits(const TokenHistory& history) const;
  void find_candidates(std::span<const float> logits, float most, double reach);
  void add_candidate(float logit, int32_t id, float most, double reach);
  void narrow_candidates(float most);
  std::pmr::vector<Candidate>& candidates() { return scratch_->candidates; }
  double total_weight();
  template <class Order, class Keep>
  size_t sort_while(Order before, Keep keep);
  void keep_top_k();
  void keep_top_p();
  void keep_typical(float most);
  int32_t draw();

  SamplingParams params_;
  std::vector<int32_t> allowed_;  // ascending
  std::vector<int32_t> ends_;     // tokens that end the sequence
  std::mt19937_64 random_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace sluice
