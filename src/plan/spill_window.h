// The memory in which matrices are written to the spill cache before a load: some rows of one are
// loaded as they will be in memory, and written from there.
#pragma once

#include <cstdint>

#include "src/plan/compile.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct SpillWindow {
  Staging staging;            // to compile the load of such rows
  uint64_t ring_bytes = 0;    // of its slots; behind them are the rows
  int64_t rows = 0;           // at once: whole groups of row_step(), or all; 0: there is no room
  uint64_t least_memory = 0;  // bytes that have room for one group
};
SpillWindow spill_window(const ReadPlan& plan, uint32_t tensor, uint64_t memory);

// Bytes that have room for some rows of each tensor.
uint64_t least_to_write(const ReadPlan& plan, const SpillLayout& layout);

}  // namespace sluice
