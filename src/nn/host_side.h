// The CPU beside a device with memory of its own: it multiplies weights that lie in host memory,
// where a step has so few rows that bringing the weights over the link would take longer.
//
// Activations go down to pinned memory, and sums come back, as work of the device's stream. The
// calling thread waits for the one, since it is what computes; nobody waits for the other. Memory
// that the sums are in is written again only after a later wait for the same stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/kernels.h"
#include "src/device/device.h"
#include "src/nn/param.h"

namespace sluice {

class HostSide {
 public:
  // `kernels` are the CPU's. Both areas are pinned where possible, and have room for the inputs and
  // the outputs of any product [elements]. All arguments outlive it.
  HostSide(const Kernels& kernels, Device& device, std::span<float> inputs,
           std::span<float> outputs);

  const Kernels& kernels() const { return kernels_; }
  // Waits until what `stream` was given is done: copies to host memory, for one.
  void await(DeviceStream& stream) const;
  // y = x w^T (+ bias), as work of `stream`: x and y are in the device's memory, w and bias in the
  // host's.
  void linear(Tensor x, const Weight& w, const float* bias, Tensor y, DeviceStream& stream) const;

 private:
  const Kernels& kernels_;
  std::span<float> inputs_, outputs_;
  std::unique_ptr<DeviceEvent> arrived_;
};

// Returns whether the CPU multiplies the parameter in a step of so many rows: it lies in host
// memory beside a device, and the plan says so.
bool is_multiplied_by_host(const Param& w, int64_t rows);

// Copies a matrix to another of its shape, in any memory.
void copy_rows(Tensor to, Tensor from, DeviceStream& stream);

}  // namespace sluice
