// Results of CUDA's functions as this project's errors.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice::cuda {

// Throws unless all is well: Error(no_fit) where memory is missing, Error(runtime) with the
// driver's words for the rest. After some faults of a kernel or of the hardware CUDA refuses
// everything that the process asks for: the error says so.
void check_cuda(cudaError_t status, const char* what);

}  // namespace sluice::cuda
