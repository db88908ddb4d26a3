// The link to a device with memory of its own.
#pragma once

#include "src/device/device.h"

namespace sluice {

// Bytes a second from pinned host memory to the device: the best of several copies of 64 MiB.
// Leases 64 MiB of both memories meanwhile, and uses the device's reserve(), which nothing else may
// hold. Error(no_fit).
double measure_link(Device& device, Ledger& ledger);

}  // namespace sluice
