// Tiers of a weight's or a KV block's place, nearest first.
#pragma once

#include <cstdint>

namespace sluice {

enum class Tier : uint8_t {
  device,  // where it is computed with: of the CPU, the host's memory
  host,    // in host memory beside that
  disk,
};

}  // namespace sluice
