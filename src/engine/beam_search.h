// Beam search: the likeliest continuations as a whole, exactly as in transformers'
// generate(num_beams=...) with early_stopping=False. Pure functions: from the state of each beam to
// its next tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/logprobs.h"

namespace sluice {

inline constexpr int64_t kMostBeams = 128;

struct BeamParams {
  int64_t width = 0;          // beams that are kept; 0: no beam search
  double length_penalty = 1;  // a continuation's score is its logprob over its length to the power
};

// The state of one beam: the logprob of its tokens so far, and the candidates for the next.
struct BeamState {
  double logprob = 0;
  std::vector<Logprob> next;  // the likeliest, falling; beam_candidates() of them
};

// A beam and a token after it.
struct BeamChoice {
  size_t beam = 0;
  int32_t id = 0;
  double logprob = 0;  // of the beam with the token
};

struct BeamStep {
  std::vector<BeamChoice> next;   // beams that go on, best first
  std::vector<BeamChoice> ended;  // by a token that ends a sequence
  double best = 0;                // logprob of the likeliest of all
};

// Candidates that a step needs of each beam, where `ends` tokens end a sequence.
int64_t beam_candidates(const BeamParams& params, int64_t ends);

BeamStep advance_beams(const BeamParams& params, std::span<const BeamState> beams,
                       std::span<const int32_t> end_ids);

// `tokens`: those that were generated, with the one that ended the sequence.
double beam_score(const BeamParams& params, double logprob, int64_t tokens);

}  // namespace sluice
