// The context in which layers compute: kernels, and a group of ranks.
#pragma once

#include "kernels/kernels.h"
#include "src/nn/group.h"

namespace sluice {

class HostSide;

struct Context {
  const Kernels& kernels;
  const Group& group;
  // The CPU beside the device, which multiplies weights in host memory; null: it does not.
  const HostSide* host = nullptr;
  // Set where the CPU itself computes beside the device: `kernels` and activations are its own, and
  // all weights are taken from where they lie in host memory.
  bool on_host = false;
};

}  // namespace sluice
