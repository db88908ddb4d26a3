#include "src/device/cuda/cuda_graph.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "src/base/log.h"
#include "src/device/cuda/check_cuda.h"

namespace sluice::cuda {
namespace {

size_t free_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

// A recorded graph, until it can be launched.
struct Recorded {
  Recorded() = default;
  ~Recorded() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  cudaGraph_t graph = nullptr;
};

}  // namespace

std::unique_ptr<CudaGraph> CudaGraph::capture(cudaStream_t stream,
                                              const std::function<void()>& work) {
  // Other threads may do meanwhile what would not be recorded.
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
             "beginning to record work");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  Recorded recorded;
  cudaError_t status = cudaStreamEndCapture(stream, &recorded.graph);
  if (status == cudaSuccess && failure) std::rethrow_exception(failure);
  std::unique_ptr<CudaGraph> graph(new CudaGraph);
  if (status == cudaSuccess) status = graph->make(recorded.graph, stream);
  if (status == cudaSuccess) return graph;
  cudaGetLastError();
  log::warning("CUDA: kernels are launched one by one, since a step cannot be recorded: {}",
               cudaGetErrorString(status));
  return nullptr;
}

// The driver tells of its own memory only by what is left.
cudaError_t CudaGraph::make(cudaGraph_t recorded, cudaStream_t stream) {
  const size_t before = free_bytes();
  cudaError_t status = cudaGraphInstantiateWithFlags(&exec_, recorded, 0);
  if (status == cudaSuccess) status = cudaGraphUpload(exec_, stream);
  const size_t after = free_bytes();
  bytes_ = before - std::min(before, after);
  return status;
}

CudaGraph::~CudaGraph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

void CudaGraph::launch(cudaStream_t stream) {
  check_cuda(cudaGraphLaunch(exec_, stream), "launching a graph");
}

}  // namespace sluice::cuda
