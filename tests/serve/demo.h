// The demonstration model, for tests that need a planner and no weights.
#pragma once

#include "src/engine/planner.h"
#include "tests/support/temp.h"

namespace sluice::test {

inline ModelOptions demo_options() {
  ModelOptions options;
  options.model = source_dir() / "tools/demo-model";
  options.threads = 1;
  return options;
}

}  // namespace sluice::test
