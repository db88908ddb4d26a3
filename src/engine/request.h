// A request to the engine, and its result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/engine/beam_search.h"
#include "src/engine/logprobs.h"
#include "src/engine/sampling_params.h"
#include "src/engine/speculation.h"
#include "src/models/embedding_rules.h"

namespace sluice {

struct Request {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  // 0: the prompt is computed, for its prompt_logprobs or its vector
  SamplingParams sampling;
  std::optional<Pooling> pooling = {};  // a vector is wanted; max_tokens is 0
  std::vector<std::string> stop;        // generation ends before the first of them
  bool skip_special_tokens = true;      // in the text
  bool include_stop = false;            // the stop string that ends it is in the text, too
  std::vector<int32_t> eos_ids;         // empty: eos is ignored
  int64_t n = 1;                        // continuations of the prompt, the i-th with seed + i
  bool rank = false;                    // the continuations' cumulative_logprob is wanted
  int64_t priority = 0;                 // lower goes first
  BeamParams beams;                     // the n best continuations as a whole, instead of sampling
  // Draft tokens ahead and verify several in one step: the same tokens, in fewer passes.
  bool lookup = false;
  DraftModel* draft = nullptr;  // asked where lookup knows nothing; one request's at a time
};

// Returns whether log probabilities of its tokens come from the rows that they are chosen from.
inline bool wants_logprobs(const Request& request) {
  return request.sampling.logprobs || request.rank;
}

// Tokens after which a continuation ends: those of eos_ids and stop_token_ids.
std::vector<int32_t> end_ids(const Request& request);

// Bytes that sampling its tokens takes beside the logits, as RunShape::sampling_bytes.
uint64_t sampling_bytes(const Request& request, int64_t vocab_size);
// Returns the part of sampling_bytes for grammars: the table of tokens, the masks, and the grammars
// that are kept. Whole pages.
uint64_t grammar_bytes(const Request& request, int64_t vocab_size);

// One continuation.
struct RequestResult {
  std::vector<int32_t> ids;  // generated, with the eos or stop token that ended it
  std::string text;
  std::string finish_reason;            // "stop" (eos, a stop token or string), "length", "error"
  std::string stop;                     // the stop string that ended it; empty: none did
  std::string error;                    // why no token could be sampled
  std::vector<TokenLogprobs> logprobs;  // of each id, if SamplingParams asked for them
  // Logprobs of the prompt's tokens after the first, if requested; in continuation 0 only.
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<float> embedding;   // [hidden_size] as Request::pooling asks for it, else empty
  double cumulative_logprob = 0;  // of all ids together, if the request asked for it
  int64_t prefix_tokens = 0;      // tokens of the prompt that were found in the KV cache
  double queue_seconds = 0;       // until its prompt was begun
  double prefill_seconds = 0;     // from there to the first token
  double decode_seconds = 0;      // of all tokens after the first
  uint64_t logits_hash = 0;       // XXH3-64 of the logits row that gave the last id
  int64_t steps = 0;              // passes over the model after the prompt's
  int64_t drafted = 0;            // draft tokens that were verified
  int64_t accepted = 0;           // of these
};

// Throws Error(usage) for an empty prompt, unknown ids, sampling values out of range, and stop
// strings without a tokenizer.
void check_request(const Request& request, int64_t vocab_size, bool has_tokenizer);

// Throws Error(usage) that names the first id outside [0, vocab_size).
void check_token_ids(std::span<const int32_t> ids, int64_t vocab_size);

}  // namespace sluice
