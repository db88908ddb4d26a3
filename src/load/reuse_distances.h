// Counts how many other experts are used from one use of an expert to the next. A state machine
// without I/O, time and threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/load/expert_policy.h"
#include "src/plan/expert_reuse.h"

namespace sluice {

class ReuseDistances {
 public:
  ReuseDistances() = default;
  // The model has so many experts, and the cache so many slots.
  ReuseDistances(uint64_t experts, uint64_t slots);

  // The experts that a step uses, in turn; is_hit: the cache has had them.
  void use(std::span<const ExpertUse> uses);
  const ExpertReuse& seen() const { return seen_; }

  static constexpr uint64_t kExpertBytes = sizeof(uint32_t);

 private:
  std::vector<uint32_t> last_used_;  // the latest at the end
  ExpertReuse seen_;
};

}  // namespace sluice
