// The shape of a kernel's launch, as plain data: what a test on the CPU can look at, too.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Shared memory that a block may have on every GPU of compute capability 8.0 and above (CUDA C++
// Programming Guide, "Technical Specifications per Compute Capability").
inline constexpr uint32_t kMostSharedBytes = 99 * 1024;

struct Extent3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Extent3 grid;               // blocks
  Extent3 block;              // threads of each; x * y * z <= 1024
  uint32_t shared_bytes = 0;  // of each block
};

}  // namespace sluice::cuda
