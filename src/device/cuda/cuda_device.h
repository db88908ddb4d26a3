// A GPU, by the CUDA runtime.
#pragma once

#include <memory>

#include "src/device/device.h"

namespace sluice::cuda {

inline constexpr int kLeastComputeCapability = 80;  // bf16 in tensor cores, cp.async

// GPU number `index`, as the runtime counts those that CUDA_VISIBLE_DEVICES leaves. Error(usage)
// in one sentence where there is no driver, no such GPU, or one that is too old.
std::unique_ptr<Device> open_device(int index);

}  // namespace sluice::cuda
