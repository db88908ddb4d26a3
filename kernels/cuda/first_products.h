// The first use of the vendor's library, ahead of everything that is measured.
#pragma once

#include "kernels/cuda/gemm.h"
#include "src/device/device.h"

namespace sluice::cuda {

// Multiplies once in each way that the library has, and waits. The driver and the library load code
// and tables when they are first used, tens of MB of host memory: then these are there when a plan
// measures the process and the device's free memory. Takes memory of the device meanwhile, and does
// nothing where little is free.
void first_products(Device& device, Gemm& gemm);

}  // namespace sluice::cuda
