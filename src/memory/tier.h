// Tiers of a weight's or a KV block's place, nearest first.
#pragma once

#include <cstdint>

namespace sluice {

enum class Tier : uint8_t {
  device,  // where it is computed with: of the CPU, the host's memory
  host,    // in host memory beside that
  disk,
  // On disk, and as far as there is room in a cache of the memory where it is computed with:
  // weights of experts only.
  cached,
};

}  // namespace sluice
