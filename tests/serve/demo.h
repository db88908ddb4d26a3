// The demonstration model, for tests that need a session and no weights.
#pragma once

#include "src/engine/session.h"
#include "tests/support/temp.h"

namespace sluice::test {

inline SessionOptions demo_options() {
  SessionOptions options;
  options.model = source_dir() / "tools/demo-model";
  options.threads = 1;
  return options;
}

}  // namespace sluice::test
