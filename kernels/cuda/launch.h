// The shape of a kernel's launch, as plain data: what a test on the CPU can look at, too.
#pragma once

#include <cstdint>

namespace sluice::cuda {

struct Extent3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Extent3 grid;               // blocks
  Extent3 block;              // threads of each; x * y * z <= 1024
  uint32_t shared_bytes = 0;  // of each block
};

}  // namespace sluice::cuda
