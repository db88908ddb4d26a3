// The CUDA backend on an emulated device, with plain loops in the place of the vendor's library.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"
#include "tests/support/simt/emulated_device.h"

namespace sluice::simt {

// `codes`: what the library makes of E4M3, as on GPUs before Ada, on it, and on Hopper. It has
// products of integers unless that is nothing.
std::unique_ptr<cuda::Gemm> make_emulated_gemm(cuda::E4M3Product codes = cuda::E4M3Product::scaled);
std::unique_ptr<Backend> make_emulated_backend(const DeviceOptions& options);

}  // namespace sluice::simt
