// Where a weight or a KV block may lie, nearest first.
#pragma once

#include <cstdint>

namespace sluice {

enum class Tier : uint8_t {
  device,  // where it is computed with: of the CPU, the host's memory
  host,    // in host memory beside that
  disk,
};

}  // namespace sluice
