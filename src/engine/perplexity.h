// Measures how well a model predicts a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "src/engine/runner.h"

namespace sluice {

// exp of the mean negative log likelihood of each token after the first of its window.
struct Perplexity {
  double perplexity = 0;
  int64_t tokens = 0;  // predicted
};
// The ids of one window after another, each until the next is asked for; empty when there is none.
using Windows = std::function<std::span<const int32_t>()>;
// Error(usage) for a text of fewer than two tokens; Error(runtime) when `stop` is requested.
Perplexity evaluate(Runner& runner, const Windows& next_window, std::stop_token stop);

}  // namespace sluice
