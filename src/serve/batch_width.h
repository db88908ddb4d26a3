// How many sequences to run at once: each needs room for its keys and values, which weights could
// have, and shares with the others what a pass over the weights costs.
#pragma once

#include <cstdint>
#include <span>

#include "src/engine/request.h"
#include "src/engine/session.h"

namespace sluice {

// Slots for the longest `sequences` of them, whichever they are, and steps that could take all
// their prompts, as they come together.
RunShape batch_shape(const Session& session, std::span<const Request* const> requests,
                     int64_t sequences);

struct BatchWidth {
  int64_t sequences = 0;
  RunShape shape;                // to place the session with
  double tokens_per_second = 0;  // predicted, of all sequences together
};

// At most `most`, with the most tokens a second predicted; fewer where more would hardly be faster.
// Every request must have room beside the others in the worst case. Error(no_fit) where not even
// one sequence has.
BatchWidth choose_batch_width(Session& session, std::span<const Request* const> requests,
                              int64_t most);

}  // namespace sluice
