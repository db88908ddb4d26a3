// The GPUs of this machine as the CUDA runtime reports them; asking uses none of them.
#pragma once

#include <string>

#include "src/device/device.h"

namespace sluice::cuda {

// The GPUs that CUDA_VISIBLE_DEVICES leaves.
struct GpuCount {
  int gpus = 0;
  std::string why_none;  // part of a sentence
};
GpuCount count_gpus();

DeviceInfo gpu_info(int index);

}  // namespace sluice::cuda
