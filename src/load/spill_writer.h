// Writes a spill cache that a plan needs, before the load, or again where the file is damaged: some
// rows of a matrix at a time are loaded, by a plan of their own, and written from memory.
#pragma once

#include <cstddef>
#include <span>
#include <stop_token>

#include "io/checkpoint/index.h"
#include "src/load/fetcher.h"
#include "src/load/spill.h"
#include "src/plan/read_plan.h"

namespace sluice {

// Everything referred to outlives the call.
struct SpillWriting {
  const ReadPlan& plan;
  const io::CheckpointIndex& index;
  const LoadOptions& options;   // with the spill, or none
  std::span<std::byte> memory;  // begins a page; with room for some rows of each matrix
  std::stop_token stop;
};

inline bool needs_spill(const LoadOptions& options) {
  return options.spill != nullptr && options.spill->is_needed();
}

// Makes the spill ready, or verifies it; nothing where the plan does not need it, or it is ready.
// Error(no_fit) where the memory has no room; Error(runtime) where the file cannot be written, or
// `stop` is requested; Error(refused) for damaged weights.
void write_spill(const SpillWriting& writing);

}  // namespace sluice
