// What has been decided of a model before its weights are read.
#pragma once

#include <memory>
#include <utility>

#include "src/plan/memory_plan.h"

namespace sluice {

// Immutable once it is made, and shared by whoever works by it.
struct Placed {
  RunShape shape;  // that was asked for
  MemoryPlan memory;
  std::shared_ptr<const ReadPlan> read;
};

}  // namespace sluice
