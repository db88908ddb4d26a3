#include "kernels/cuda/open_cuda.h"

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/first_products.h"
#include "src/device/cuda/cuda_device.h"

namespace sluice {

std::unique_ptr<Backend> open_cuda(int index) {
  std::unique_ptr<Device> device = cuda::open_device(index);
  std::unique_ptr<cuda::Gemm> gemm = cuda::load_cublaslt();
  if (gemm != nullptr) cuda::first_products(*device, *gemm);
  return cuda::make_backend(std::move(device), std::move(gemm));
}

}  // namespace sluice
