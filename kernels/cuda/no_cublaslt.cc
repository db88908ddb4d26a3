// Builds with a CUDA Toolkit that lacks cublasLt.h.
#include "kernels/cuda/cublaslt.h"
#include "src/base/log.h"

namespace sluice::cuda {

std::unique_ptr<Gemm> load_cublaslt(GemmSearch) {
  log::warning(
      "this build of sluice has no cuBLASLt: prompts are computed {} rows at a time, which is "
      "slower",
      kFewRows);
  return nullptr;
}

}  // namespace sluice::cuda
