// The GPUs of this machine, found without using one. A program links sluice_cuda_device, which asks
// the driver, or sluice_no_cuda_device.
#pragma once

#include <string>
#include <vector>

#include "src/device/device.h"

namespace sluice {

struct FoundGpus {
  std::vector<DeviceInfo> gpus;  // as --device counts them
  std::string why_none;          // part of a sentence; where there is none
};
FoundGpus find_gpus();

}  // namespace sluice
