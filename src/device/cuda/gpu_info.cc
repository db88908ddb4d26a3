#include "src/device/cuda/gpu_info.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "src/device/cuda/check_cuda.h"
#include "src/device/find_gpus.h"

namespace sluice {
namespace cuda {
namespace {

// Two transfers a clock, on all lines of the bus; 0 where the driver does not tell.
double memory_rate(int device) {
  int kilohertz = 0, bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 2e3 * kilohertz * bits / 8;
}

}  // namespace

GpuCount count_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return {count, count == 0 ? "no GPU found" : ""};
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    return {0, fmt::format("no NVIDIA driver found, or one too old for CUDA {}.{}",
                           CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10)};
  }
  return {0, fmt::format("there is none: {}", cudaGetErrorString(status))};
}

DeviceInfo gpu_info(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  return {properties.name, 10 * properties.major + properties.minor, properties.totalGlobalMem,
          memory_rate(index)};
}

}  // namespace cuda

FoundGpus find_gpus() {
  const cuda::GpuCount count = cuda::count_gpus();
  FoundGpus found{{}, count.why_none};
  for (int i = 0; i < count.gpus; ++i) found.gpus.push_back(cuda::gpu_info(i));
  return found;
}

}  // namespace sluice
