// Experts of a streamed model that stay in memory until others take their slots.
//
// All layers share equal slots, each with room for the matrices of one expert. A policy says which
// experts stay (expert_policy.h). Here is the memory, and which of an expert's tiles it has: they
// come one after the other, as compute uses them. Tiles that are encoded on their way are encoded
// to where they stay; others are copied. One thread at a time calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/load/expert_policy.h"
#include "src/load/reuse_distances.h"
#include "src/memory/buffer.h"
#include "src/plan/plan_lists.h"
#include "src/plan/read_plan.h"

namespace sluice {

struct ExpertCounts {
  uint64_t slots = 0;                                   // of the cache
  uint64_t uses = 0;                                    // of an expert by a step, whatever the rows
  uint64_t hits = 0;                                    // that read nothing
  uint64_t hit_bytes = 0;                               // as they are in memory, of these
  uint64_t kept = 0;                                    // experts that were read into a slot
  ExpertCounts& operator+=(const ExpertCounts& later);  // of the same model
};

class ExpertCache {
 public:
  // `plan` outlives it. Takes its slots from the ledger; none if the plan has none.
  ExpertCache(const ReadPlan& plan, Ledger& ledger);

  // Returns whether `param` is of an expert that may be in the cache.
  bool has(const Param& param) const { return places_.contains(&param); }
  // The step uses the expert of `param`, beside others that are named before choose().
  void want(const Param& param);
  bool is_choosing() const { return !wanted_.empty(); }
  // Decides about what is wanted, and returns the experts that are there: numbers of plan.experts.
  // Their weights stay until the next call.
  std::span<const uint32_t> choose();
  // The whole weight of an expert that the last choose() has found; nullopt: it has to be read.
  std::optional<Weight> find(const Param& param) const;
  // The memory for rows from `row` on, of an expert that the last choose() has given a slot and
  // that has to be read; it is the rows' until the next choose(). nullopt: there is none, or planes
  // that all rows share come with them.
  std::optional<Weight> place(const Param& param, int64_t row, int64_t rows) const;
  // Compute uses tiles, the first of which holds `row` of `param`: keeps them, where the expert
  // has a slot. Tiles that are not in their place() are copied.
  void keep(const Param& param, uint32_t first_tile, uint32_t tiles, const Weight& weight,
            int64_t row);

  const ExpertCounts& counts() const { return counts_; }
  // Steps of few tokens count: a prompt uses nearly all experts alike.
  const ExpertReuse& reuse() const { return distances_.seen(); }

 private:
  struct Place {
    uint32_t expert = 0;
    uint32_t param = 0;   // of the plan
    uint64_t offset = 0;  // in the slot
  };
  struct Expert {
    uint32_t first_tile = 0;  // of the sweep
    uint32_t tiles = 0;
    uint32_t there = 0;  // of them, in its slot
    bool is_wanted = false;
    bool is_hit = false;
    bool is_filled = false;  // its slot, since the last choose()
  };
  static_assert(sizeof(Expert) + sizeof(uint32_t) + ExpertPolicy::kExpertBytes + sizeof(ExpertUse) +
                    2 * sizeof(uint32_t) + ReuseDistances::kExpertBytes <=
                kExpertBytes);
  static_assert(ExpertPolicy::kSlotBytes <= kExpertSlotBytes);

  static std::vector<uint32_t> layers_of(const ReadPlan& plan);
  Weight weight(const Place& place) const;

  const ReadPlan& plan_;
  Buffer memory_;
  std::vector<Expert> experts_;
  std::unordered_map<const Param*, Place> places_;
  ExpertPolicy policy_;
  ReuseDistances distances_;
  size_t few_ = 0;  // uses of a step that counts
  std::vector<ExpertUse> wanted_;
  std::vector<uint32_t> hits_, filled_;
  ExpertCounts counts_;
};

}  // namespace sluice
