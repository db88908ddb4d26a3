// --device cuda, as this build has it.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace sluice {

// GPU number `index`. Error(usage) in one sentence where it cannot be used: no GPU, no driver, one
// that is too old, or a build without the CUDA Toolkit.
std::unique_ptr<Backend> open_cuda(int index);

}  // namespace sluice
