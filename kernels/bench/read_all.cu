#include "kernels/bench/read_all.h"
#include "kernels/cuda/simt.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kThreads = 256, kBlocks = 132 * 8;
constexpr int kInFlight = 8;  // loads of a thread before their first use

__global__ void read_kernel(const uint4* from, uint64_t count, uint32_t* sum) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint32_t mine = 0;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    uint4 words[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) words[k] = cuda::load_streaming<uint4>(from + i + k * step);
#pragma unroll
    for (const uint4& w : words) mine += w.x + w.y + w.z + w.w;
  }
  for (; i < count; i += step) {
    const uint4 w = cuda::load_streaming<uint4>(from + i);
    mine += w.x + w.y + w.z + w.w;
  }
  atomicAdd(sum, mine);
}

}  // namespace

void read_all(std::span<const std::byte> bytes, uint32_t* sum, cuda::Stream stream) {
  cuda::launch(read_kernel, {{kBlocks}, {kThreads}}, stream,
               reinterpret_cast<const uint4*>(bytes.data()), uint64_t{bytes.size() / 16}, sum);
}

}  // namespace sluice::bench
