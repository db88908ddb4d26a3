#include <nvtx3/nvToolsExt.h>

#include "src/device/range.h"

namespace sluice {

Range::Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
Range::~Range() { nvtxRangePop(); }

}  // namespace sluice
