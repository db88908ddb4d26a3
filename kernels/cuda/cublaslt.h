// Gemm by NVIDIA's cuBLASLt, which is loaded when it is asked for: programs start without it.
#pragma once

#include <memory>

#include "kernels/cuda/gemm.h"

namespace sluice::cuda {

// Null where the library is not found, which is said in a warning.
std::unique_ptr<Gemm> load_cublaslt();

}  // namespace sluice::cuda
