// Speculative decoding: draft tokens, verified together: a pass over streamed weights costs the
// disk the same for one token as for sixteen. Only tokens that would have been generated anyway are
// accepted, so they change the speed and never the text.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "src/engine/planner.h"

namespace sluice {

// Most tokens of one verification: the last certain one and the draft tokens after it.
inline constexpr int64_t kSpeculativeRows = 16;

// Prompt lookup: what followed the last tokens where they stood before (Saxena, "Prompt Lookup
// Decoding", 2023). At most `most` draft tokens for what follows `ids` (prompt and continuation);
// none where their end is new.
std::vector<int32_t> lookup_draft(std::span<const int32_t> ids, int64_t most);

// A smaller model of the same vocabulary, whose likeliest tokens are the draft (Leviathan et al.,
// "Fast Inference from Transformers via Speculative Decoding", 2023).
class DraftModel {
 public:
  // Returns the shape of a draft model's run for sequences of `tokens` tokens, `prompt_tokens` of
  // them a prompt's.
  static RunShape shape(const Planner& draft, int64_t tokens, int64_t prompt_tokens);
  // Sequences of up to `max_length` tokens. The runner outlives it.
  DraftModel(Runner& runner, int64_t max_length);
  // Returns at most `most` tokens. A fault of the draft model (its files cannot be read) costs only
  // speed: it is a warning, and the model proposes nothing from then on. Error(runtime) where
  // `stop` is requested.
  std::vector<int32_t> propose(std::span<const int32_t> ids, int64_t most, std::stop_token stop);

 private:
  std::vector<int32_t> generate(std::span<const int32_t> ids, int64_t most, std::stop_token stop);

  Runner& runner_;
  int64_t max_length_;
  Sequence sequence_;
  std::vector<int32_t> seen_;  // tokens whose keys and values the sequence holds
  bool has_failed_ = false;
};

// Seconds of a pass by its rows: a line fitted to measurements, the newest weighted
// most.
class PassCost {
 public:
  void learn(int64_t rows, double seconds);
  bool known() const { return seconds_ > 0; }
  double of(int64_t rows) const { return seconds_ + (static_cast<double>(rows) - rows_) * row_; }
  double row() const { return row_; }  // for each more

 private:
  double rows_ = 0;  // averages
  double seconds_ = 0;
  double variance_ = 0;  // of rows
  double covariance_ = 0;
  double row_ = 0;
};

// Number of draft tokens of one source that are worth their cost, from what was accepted lately.
class DraftLength {
 public:
  // Returns the number of draft tokens with the most tokens a second, at most `most`, for one of
  // `sequences` that share the cost of a pass. If that is none, one is tried now and then,
  // ever less often.
  int64_t choose(int64_t most, const PassCost& cost, int64_t sequences = 1);
  // `seconds`: what proposing them took.
  void learn(int64_t drafted, int64_t accepted, double seconds);

 private:
  double probability() const;  // that a draft token is right when those before it were

  double right_ = 0;  // recent ones count most
  double tried_ = 0;
  double seconds_each_ = 0;
  int64_t pause_ = 1;  // passes without a draft token after the next that is of no use
  int64_t resting_ = 0;
};

}  // namespace sluice
