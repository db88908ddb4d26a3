#include "kernels/cuda/open_cuda.h"

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_backend.h"
#include "src/device/cuda/cuda_device.h"

namespace sluice {

std::unique_ptr<Backend> open_cuda(int index) {
  std::unique_ptr<Device> device = cuda::open_device(index);
  return cuda::make_backend(std::move(device), cuda::load_cublaslt());
}

}  // namespace sluice
