// A CUDA graph: work of a stream, recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "src/device/device.h"

namespace sluice::cuda {

class CudaGraph final : public DeviceGraph {
 public:
  // Records what `work` puts into `stream`, a stream of the current device. Null, with a warning,
  // where CUDA cannot record it or has no memory for it; exceptions of `work` propagate.
  static std::unique_ptr<CudaGraph> capture(cudaStream_t stream, const std::function<void()>& work);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  uint64_t bytes() const override { return bytes_; }
  void launch(cudaStream_t stream);

 private:
  CudaGraph() = default;
  cudaError_t make(cudaGraph_t recorded, cudaStream_t stream);

  cudaGraphExec_t exec_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace sluice::cuda
