// The partitions of attention of single rows, combined (attention_partials.cuh).
#include "kernels/cuda/attention_partials.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// x: rows, y: heads. Partitions in order; threads take elements.
__global__ void __launch_bounds__(kThreads)
    combine_kernel(AttentionArgs a, const int32_t* positions, Partials partials) {
  wait_for_earlier();
  const Attended of = attended(a, positions[blockIdx.x]);
  const Attended more = attended_more(a, positions[blockIdx.x]);
  for (int d = static_cast<int>(threadIdx.x); d < a.value_dim; d += kThreads)
    combine_element(a, partials, static_cast<int>(blockIdx.y), of, d, more);
}

}  // namespace

uint64_t decode_workspace_bytes(int64_t rows, int64_t heads, int64_t value_dim, int64_t longest,
                                int64_t more) {
  const int64_t partitions = ceil_div(longest, kPartition) + ceil_div(more, kPartition);
  return static_cast<uint64_t>(rows * heads * partitions * (value_dim + 2) * 4);
}

Partials partials_in(std::byte* workspace, const AttentionArgs& args, int64_t rows, int64_t longest,
                     int64_t more_partitions) {
  const int64_t partitions = ceil_div(longest, kPartition) + more_partitions;
  const int64_t count = rows * args.heads * partitions;
  auto* floats = reinterpret_cast<float*>(workspace);
  return {floats + count * args.value_dim, floats + count * (args.value_dim + 1), floats,
          static_cast<int>(partitions), partitions == 1 && args.sinks == nullptr};
}

void combine(const AttentionArgs& args, const int32_t* positions, const Partials& partials,
             int64_t rows, Stream stream) {
  if (partials.only) return;
  launch_early(combine_kernel,
               {{static_cast<uint32_t>(rows), static_cast<uint32_t>(args.heads)}, {kThreads}},
               stream, args, positions, partials);
}

}  // namespace sluice::cuda
