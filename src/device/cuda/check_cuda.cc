#include "src/device/cuda/check_cuda.h"

#include "src/base/error.h"

namespace sluice::cuda {
namespace {

// Errors that stay: CUDA Runtime API, enum cudaError, "must be terminated and relaunched".
bool stays(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would be told of it again, unless it stays
  const char* why = cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    fail(ErrorKind::no_fit, "CUDA: {}: {}; lower --device-memory", what, why);
  }
  fail(ErrorKind::runtime, "CUDA: {}: {}{}", what, why,
       stays(status) ? "; this process cannot use the device any more" : "");
}

}  // namespace sluice::cuda
