// The CPU as a device: its memory is the process's own, and work is done when it is asked for.
#pragma once

#include <memory>

#include "src/device/device.h"

namespace sluice {

std::unique_ptr<Device> make_host_device();

// Does all work at once, and knows nothing between calls: one is enough for everybody.
DeviceStream& host_stream();

}  // namespace sluice
