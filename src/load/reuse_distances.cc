#include "src/load/reuse_distances.h"

#include <algorithm>

namespace sluice {

ReuseDistances::ReuseDistances(uint64_t experts, uint64_t slots)
    : seen_{.experts = experts, .slots = slots} {
  last_used_.reserve(experts);
}

void ReuseDistances::use(std::span<const ExpertUse> uses) {
  for (const ExpertUse& use : uses) {
    ++seen_.uses;
    seen_.hits += use.is_hit;
    const auto found = std::find(last_used_.rbegin(), last_used_.rend(), use.expert);
    if (found != last_used_.rend()) {
      const auto others = static_cast<uint64_t>(found - last_used_.rbegin());
      ++seen_.again[others * ExpertReuse::kParts / seen_.experts];
      last_used_.erase(std::next(found).base());
    }
    last_used_.push_back(use.expert);
  }
}

}  // namespace sluice
