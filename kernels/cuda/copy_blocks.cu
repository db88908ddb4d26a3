#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int kVectorsOfThread = 4;  // in flight at once

// x: copies, y: parts of a block, each kVectorsOfThread vectors a thread.
template <class V>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const std::byte* from, std::byte* to, int64_t bytes, const BlockCopy* copies) {
  const BlockCopy copy = copies[blockIdx.x];
  from += copy.from * bytes;
  to += copy.to * bytes;
  const int64_t first = (int64_t{blockIdx.y} * kVectorsOfThread * kThreads + threadIdx.x) *
                        static_cast<int64_t>(sizeof(V));
  constexpr int64_t kStep = kThreads * sizeof(V);
  V v[kVectorsOfThread];
#pragma unroll
  for (int i = 0; i < kVectorsOfThread; ++i) {
    if (first + i * kStep < bytes) v[i] = load_streaming<V>(from + first + i * kStep);
  }
#pragma unroll
  for (int i = 0; i < kVectorsOfThread; ++i) {
    if (first + i * kStep < bytes) store_as(to + first + i * kStep, v[i]);
  }
}

}  // namespace

void copy_blocks(const std::byte* from, std::byte* to, int64_t bytes, const BlockCopy* copies,
                 int64_t count, Stream stream) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  check(bytes >= 0 && bytes % 4 == 0 && start % 4 == 0, "copy_blocks: blocks of 4-byte words");
  if (count == 0 || bytes == 0) return;
  auto with = [&](auto kernel, int64_t width) {
    const int64_t part = width * kThreads * kVectorsOfThread;
    const Launch at{{static_cast<uint32_t>(count), static_cast<uint32_t>(ceil_div(bytes, part))},
                    {kThreads}};
    launch(kernel, at, stream, from, to, bytes, copies);
  };
  if (bytes % 16 == 0 && start % 16 == 0) {
    with(copy_kernel<Vec<uint32_t, 4>>, 16);
  } else {
    with(copy_kernel<uint32_t>, 4);
  }
}

}  // namespace sluice::cuda
