// Builds without NVTX's headers.
#include "src/device/range.h"

namespace sluice {

Range::Range(const std::string&) {}
Range::~Range() = default;

}  // namespace sluice
