// The highest rates that a GPU's memory and its link to the host reach.
#pragma once

#include <map>
#include <string>

#include "src/device/device.h"

namespace sluice::bench {

// Bytes a second by what was done. Of a copy within the device's memory, read and written together.
std::map<std::string, double> ceilings(Device& device);

}  // namespace sluice::bench
