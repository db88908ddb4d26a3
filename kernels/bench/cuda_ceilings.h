// The highest rates that a GPU's memory and its link to the host reach.
#pragma once

#include <map>
#include <string>

#include "src/device/device.h"

namespace sluice::bench {

// Returns rates [bytes/s] by the kind of work. A copy within the device's memory counts bytes read
// and written.
std::map<std::string, double> ceilings(Device& device);

}  // namespace sluice::bench
