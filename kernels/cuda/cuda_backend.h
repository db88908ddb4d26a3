// A GPU and its kernels.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"

namespace sluice::cuda {

// `gemm` may be null, where the vendor's library is not there: prompts take longer then.
std::unique_ptr<Backend> make_backend(std::unique_ptr<Device> device, std::unique_ptr<Gemm> gemm);

}  // namespace sluice::cuda
