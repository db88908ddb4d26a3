// Gemm by NVIDIA's cuBLASLt, which is loaded when it is asked for: programs start without it.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/gemm.h"

namespace sluice::cuda {

// The choice among the library's ways to compute a product: the one that it thinks best, or the one
// that is fastest when the product is first computed, which then takes many times as long.
enum class GemmSearch : uint8_t { heuristic, fastest };

// Null where the library is not found, which is said in a warning.
std::unique_ptr<Gemm> load_cublaslt(GemmSearch search = GemmSearch::heuristic);

}  // namespace sluice::cuda
