#include "kernels/cuda/check_cuda.h"

#include "src/base/error.h"

namespace sluice::cuda {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(ErrorKind::runtime, "CUDA: {}: {}", what, cudaGetErrorString(status));
}

}  // namespace sluice::cuda
