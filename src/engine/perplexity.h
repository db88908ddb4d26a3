// How well a model predicts a text.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

#include "src/engine/runner.h"

namespace sluice {

// exp of the mean negative log likelihood of each token after the first of its window; windows of
// `window` tokens, no overlap.
struct Perplexity {
  double perplexity = 0;
  int64_t tokens = 0;  // predicted
};
// Error(usage) for a text of fewer than two tokens; Error(runtime) when `stop` is requested.
Perplexity evaluate(Runner& runner, std::span<const int32_t> ids, int64_t window,
                    std::stop_token stop);

}  // namespace sluice
