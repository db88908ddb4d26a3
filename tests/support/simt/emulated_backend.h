// The CUDA backend on an emulated device, with plain loops in the place of the vendor's library.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"
#include "tests/support/simt/emulated_device.h"

namespace sluice::simt {

// `codes`: whether the library has products of E4M3 and of integers.
std::unique_ptr<cuda::Gemm> make_emulated_gemm(bool codes = true);
std::unique_ptr<Backend> make_emulated_backend(const DeviceOptions& options);

}  // namespace sluice::simt
