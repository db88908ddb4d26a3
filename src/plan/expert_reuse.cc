#include "src/plan/expert_reuse.h"

#include <algorithm>

namespace sluice {
namespace {

// Returns the share of uses that a cache of the experts used last hits.
double last_used_hits(const ExpertReuse& seen, uint64_t slots) {
  const double parts = static_cast<double>(std::min(slots, seen.experts) * ExpertReuse::kParts) /
                       static_cast<double>(seen.experts);
  double hits = 0;
  for (uint64_t i = 0; i < ExpertReuse::kParts; ++i) {
    const double part = std::clamp(parts - static_cast<double>(i), 0.0, 1.0);
    hits += part * static_cast<double>(seen.again[i]);
  }
  return hits / static_cast<double>(seen.uses);
}

}  // namespace

double ExpertReuse::hit_rate(uint64_t slots_of_cache) const {
  // Bounds of what a policy gains or loses: where nearly all hits, the ratio is that of few misses.
  constexpr double kLeast = 0.5, kMost = 1.25;
  const double misses = 1 - static_cast<double>(hits) / static_cast<double>(uses);
  const double simple = 1 - last_used_hits(*this, slots);
  const double seen = simple > 0 ? std::clamp(misses / simple, kLeast, kMost) : 1;
  // Less than all the slots that the run had: the less a policy has to choose among.
  const double part = std::min(
      1.0, static_cast<double>(slots_of_cache) / static_cast<double>(std::max<uint64_t>(slots, 1)));
  const double ratio = 1 - part * (1 - seen);
  // With a part of the slots a policy keeps the best part of what it kept, which hits more than its
  // share; the experts used last may be none of the next token's then.
  const double own = part * (1 - misses);
  return std::clamp(1 - ratio * (1 - last_used_hits(*this, slots_of_cache)), own, 1.0);
}

}  // namespace sluice
