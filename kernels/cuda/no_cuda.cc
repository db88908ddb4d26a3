// Builds without the CUDA Toolkit.
#include "kernels/cuda/open_cuda.h"
#include "src/base/error.h"

namespace sluice {

std::unique_ptr<Backend> open_cuda(int) {
  fail(ErrorKind::usage,
       "--device cuda: this build of sluice has no CUDA backend; use --device cpu");
}

}  // namespace sluice
