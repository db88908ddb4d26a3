// A plan of reads from a laid out one: spans in disk order, their moves, and the sweep.
#pragma once

#include "src/plan/lay_out.h"

namespace sluice {

// A reader may widen a read to its file's alignment at both ends, inside the slot.
inline constexpr uint64_t kAlignmentSlack = 8192;

struct Staging {
  uint64_t slot_bytes = 0;  // at least; grows where one row group needs more
  uint64_t ring_bytes = 0;  // at least four slots
  bool operator==(const Staging&) const = default;
};

// Gives a plan of lay_out() all sizes of a compiled plan, but not all of its spans: for comparing
// many placements.
void plan_sizes(ReadPlan& plan, const Staging& staging, const Placement& placement,
                uint64_t expert_slots = 0);

// Throws Error(refused) whose one message names every missing, misshapen, mistyped, doubly claimed
// and unclaimed tensor. `placement`: of the parameters in the order of `params`. A table of
// embeddings that stays on disk is not in the sweep, as it is only looked up, unless it is the head
// too.
ReadPlan compile(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const Staging& staging, const Placement& placement = {},
                 uint64_t expert_slots = 0);
// Compiles a plan that lay_out() has made.
ReadPlan compile(ReadPlan laid_out, const Staging& staging, const Placement& placement = {},
                 uint64_t expert_slots = 0);

}  // namespace sluice
