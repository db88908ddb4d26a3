// Builds without the CUDA Toolkit.
#include "src/device/find_gpus.h"

namespace sluice {

FoundGpus find_gpus() { return {{}, "this build of sluice has no CUDA backend"}; }

}  // namespace sluice
