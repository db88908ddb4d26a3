// Measurements of a plan's tensors by a load, kept beside the plan for later encodings.
#pragma once

#include <optional>
#include <vector>

namespace sluice {

// One entry for each tensor of the plan. Written by a load, read by the passes that follow it.
struct Measured {
  // The largest finite |x| of a tensor whose elements have one scale, or an outer one; none:
  // not known, or not needed.
  std::vector<std::optional<float>> amax;
};

}  // namespace sluice
