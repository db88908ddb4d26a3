// The link to a device with memory of its own.
#pragma once

#include "src/device/device.h"

namespace sluice {

// Bytes a second from pinned host memory to the device, the best of several copies of 64 MiB, which
// are taken from the ledger and of both memories, and given back. Takes the device's reserve(), so
// nothing else may have it. Error(no_fit).
double measure_link(Device& device, Ledger& ledger);

}  // namespace sluice
