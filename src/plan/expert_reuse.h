// Reuse of experts, as a run has seen it: how soon a model's tokens choose the same experts again,
// which gives the share of uses that a cache of any number of experts would have had.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// Counts of steps of few tokens. A cache that keeps the experts used last hits where fewer others
// than its slots were used since the last time (Mattson et al. 1970, doi:10.1147/sj.92.0078); what
// the run's own cache has hit says how much better or worse its policy is.
struct ExpertReuse {
  static constexpr uint64_t kParts = 64;

  uint64_t experts = 0;  // of the model
  uint64_t slots = 0;    // of the run's cache
  uint64_t uses = 0;     // of experts by steps
  uint64_t hits = 0;     // of the run's cache
  // [i]: uses of an expert since whose last use at least i / kParts of all experts were used, and
  // fewer than (i + 1) / kParts. First uses are in none.
  std::array<uint64_t, kParts> again = {};

  // Fewer uses than there are experts say nothing.
  bool is_known() const { return experts > 0 && uses >= experts; }
  // The share of uses that a cache of so many slots hits. Needs is_known().
  double hit_rate(uint64_t slots_of_cache) const;
  bool operator==(const ExpertReuse&) const = default;
};

}  // namespace sluice
