// The decisions on a model before its weights are read.
#pragma once

#include <memory>
#include <utility>

#include "src/plan/memory_plan.h"

namespace sluice {

// Immutable and shared.
struct Placed {
  RunShape shape;  // the request
  MemoryPlan memory;
  std::shared_ptr<const ReadPlan> read;
};

}  // namespace sluice
