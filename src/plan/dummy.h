// Weights without a file, as vLLM's `--load-format dummy` has them: for plans and measurements of a
// model of which there is only a config.
#pragma once

#include "io/checkpoint/index.h"
#include "src/models/source.h"

namespace sluice {

// Returns the tensors that a model of this config needs, in BF16, one after another in a file whose
// bytes a reader makes (io/dummy.h). Throws Error(refused) where the config says that its weights
// are quantized, or where no file could be as large.
io::CheckpointIndex dummy_index(const ModelSource& source);

}  // namespace sluice
