// Steps with the launches of an earlier step, launched as one graph of the device, which costs the
// host far less than kernel by kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "kernels/kernels.h"
#include "src/device/device.h"
#include "src/memory/ledger.h"

namespace sluice {

struct GraphStats {
  int64_t captured = 0;
  int64_t launched = 0;
};

class StepGraphs {
 public:
  // Number of shapes remembered, the last ones used.
  static constexpr size_t kMost = 16;

  // Device, stream and ledger outlive it; at its end the stream has nothing to do.
  StepGraphs(Device& device, DeviceStream& stream, Ledger& ledger)
      : device_(device), stream_(stream), ledger_(ledger) {}

  // Does `work`, which is the same for each step of the shape. The first time kernels are launched
  // one by one: many shapes come only once, and the loading of kernels at their first launch cannot
  // be recorded. From the second time on the step is a graph. No graphs are made once the device's
  // budget has no memory for one, even without older ones.
  void run(const LaunchShape& shape, const std::function<void()>& work);

  const GraphStats& stats() const { return stats_; }

 private:
  struct Known {
    LaunchShape shape;
    std::unique_ptr<DeviceGraph> graph;  // null: the shape has come once
    Lease memory;
  };
  bool capture(Known& known, const std::function<void()>& work);
  void forget(std::list<Known>::iterator known);

  Device& device_;
  DeviceStream& stream_;
  Ledger& ledger_;
  bool offered_ = true;
  std::list<Known> known_;  // the last one used first
  GraphStats stats_;
};

}  // namespace sluice
