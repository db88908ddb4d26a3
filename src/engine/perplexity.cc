#include "src/engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/engine/logprobs.h"

namespace sluice {

Perplexity evaluate(Runner& runner, const Windows& next_window, std::stop_token stop) {
  double sum = 0;
  Perplexity result;
  for (;;) {
    std::span<const int32_t> tokens = next_window();
    if (tokens.empty()) break;
    Sequence sequence = runner.new_sequence();
    for (size_t at = 0; at < tokens.size();) {
      if (stop.stop_requested())
        fail(ErrorKind::runtime, "interrupted after {} tokens", result.tokens);
      auto chunk = tokens.subspan(
          at, std::min(static_cast<size_t>(runner.max_logits_rows()), tokens.size() - at));
      Tensor logits = runner.logits(runner.step(sequence, chunk, std::ssize(tokens)));
      for (int64_t r = 0; r < logits.rows && at + static_cast<size_t>(r) + 1 < tokens.size(); ++r) {
        std::span<const float> row{logits.row<float>(r), static_cast<size_t>(logits.cols)};
        sum -= log_probability(row, tokens[at + static_cast<size_t>(r) + 1]);
        ++result.tokens;
      }
      at += chunk.size();
    }
  }
  if (result.tokens == 0)
    fail(ErrorKind::usage, "the text has fewer than two tokens; give a longer one");
  result.perplexity = std::exp(sum / static_cast<double>(result.tokens));
  return result;
}

}  // namespace sluice
