#include "src/engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace sluice {

int64_t beam_candidates(const BeamParams& params, int64_t ends) {
  return std::max<int64_t>(2, 1 + ends) * params.width;
}

BeamStep advance_beams(const BeamParams& params, std::span<const BeamState> beams,
                       std::span<const int32_t> end_ids) {
  std::vector<BeamChoice> all;
  for (size_t b = 0; b < beams.size(); ++b) {
    for (const Logprob& l : beams[b].next)
      all.push_back({b, l.token_id, beams[b].logprob + l.logprob});
  }
  std::ranges::stable_sort(all, std::greater{}, &BeamChoice::logprob);
  BeamStep step;
  step.best = all.front().logprob;
  for (size_t rank = 0; rank < all.size() && std::ssize(step.next) < params.width; ++rank) {
    const BeamChoice& choice = all[rank];
    if (std::ranges::find(end_ids, choice.id) == end_ids.end()) {
      step.next.push_back(choice);
    } else if (static_cast<int64_t>(rank) < params.width) {
      step.ended.push_back(choice);
    }
  }
  return step;
}

double beam_score(const BeamParams& params, double logprob, int64_t tokens) {
  return logprob / std::pow(static_cast<double>(tokens), params.length_penalty);
}

}  // namespace sluice
