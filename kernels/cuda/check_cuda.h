// What CUDA's functions return, as this project's errors.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice::cuda {

// Error(runtime) with the driver's words unless all is well.
void check_cuda(cudaError_t status, const char* what);

}  // namespace sluice::cuda
