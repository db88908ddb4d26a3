// The context in which layers compute: kernels, and a group of ranks.
#pragma once

#include "kernels/kernels.h"
#include "src/nn/shard.h"

namespace sluice {

// The ranks that compute one model together, seen from one of them. Each has a part of the weights
// (src/nn/shard.h); activations between blocks are whole on every rank.
class Group {
 public:
  virtual ~Group() = default;
  virtual Rank rank() const = 0;
  // y becomes the sum of all ranks' y, added in the order of ranks, so that every rank has the same
  // bits. Work of `stream`, which y is work of.
  virtual void sum(Tensor y, DeviceStream& stream) const = 0;
};

// One rank, whose sums are complete.
class SoloGroup final : public Group {
 public:
  Rank rank() const override { return {}; }
  void sum(Tensor, DeviceStream&) const override {}
};

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
