// Partitions of the attention of single rows: what each leaves, and how they are combined.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::cuda {

constexpr int kPositions = static_cast<int>(kPartition);

// Workspace, for each row, head and partition: the largest score, the sum of exponentials and the
// values weighted by them.
struct Partials {
  float* top;
  float* sum;
  float* out;  // value_dim of each
  int partitions;
  bool only;  // the one partition's values, divided by its sum, are the result
};

// `longest`: positions that a row attends to at most; `more_partitions`: of another cache.
Partials partials_in(std::byte* workspace, const AttentionArgs& args, int64_t rows, int64_t longest,
                     int64_t more_partitions = 0);
// Combines the partitions in a launch of their own, where there are several, or sinks.
void combine(const AttentionArgs& args, const int32_t* positions, const Partials& partials,
             int64_t rows, Stream stream);

__device__ inline int64_t partial_at(const AttentionArgs& a, const Partials& p, int head,
                                     int partition) {
  return (int64_t{blockIdx.x} * a.heads + head) * p.partitions + a.first_part + partition;
}

// The end of what a query at `position` attends to: behind its own, or behind the last one chosen.
__device__ inline int key_end(const AttentionArgs& a, int position) {
  const int end = a.tokens == 1 ? position + 1 : (position + 1) / a.tokens;
  return a.chosen != nullptr && end > a.most ? a.most : end;
}

// Scores [heads][kPositions] of the partition blockIdx.z to exponentials; a warp takes a head.
template <int kWarps>
__device__ void soften(const AttentionArgs& a, int first_head, int heads, int count,
                       const Partials& partials, float* scores) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int h = warp; h < heads; h += kWarps) {
    float* of_head = scores + h * kPositions;
    float top = kMinusInfinity, sum = 0;
    for (int i = lane; i < count; i += 32) top = fmaxf(top, of_head[i]);
    top = warp_reduce(top, Larger{});
    for (int i = lane; i < count; i += 32) {
      of_head[i] = expf(of_head[i] - top);
      sum += of_head[i];
    }
    sum = warp_reduce(sum, Plus{});
    if (lane != 0) continue;
    const int64_t at = partial_at(a, partials, first_head + h, static_cast<int>(blockIdx.z));
    partials.top[at] = top;
    partials.sum[at] = sum;
  }
}

// Partitions of what a query attends to.
struct Attended {
  int first, end;
};
__device__ inline Attended attended(const AttentionArgs& a, int query) {
  return {first_key(a, query) / kPositions, (key_end(a, query) + kPositions - 1) / kPositions};
}

// Partitions of the other cache.
__device__ inline Attended attended_more(const AttentionArgs& a, int query) {
  if (a.more_tokens == 0) return {0, 0};
  int entries = (query + 1) / a.more_tokens;
  if (a.more_most > 0 && entries > a.more_most) entries = a.more_most;
  return {a.more_part, a.more_part + (entries + kPositions - 1) / kPositions};
}

// Element d of a head, of its partitions in order, then of those of the other cache.
__device__ inline void combine_element(const AttentionArgs& a, const Partials& partials, int head,
                                       const Attended& of, int d, const Attended& more = {0, 0}) {
  const int64_t first = partial_at(a, partials, head, 0);
  float top = a.sinks == nullptr ? kMinusInfinity : a.sinks[head];
  float total = a.sinks == nullptr ? 0 : 1, sum = 0;
  const int own = of.end - of.first;
  for (int i = 0; i < own + more.end - more.first; ++i) {
    const int p = i < own ? of.first + i : more.first + i - own;
    const float other = partials.top[first + p], larger = fmaxf(top, other);
    const float keep = expf(top - larger), take = expf(other - larger);
    sum = sum * keep + partials.out[(first + p) * a.value_dim + d] * take;
    total = total * keep + partials.sum[first + p] * take;
    top = larger;
  }
  a.out[blockIdx.x * a.out_stride + int64_t{head} * a.value_dim + d] = sum / total;
}

// Element d of a partition's weighted values.
__device__ inline void store_sum(const AttentionArgs& a, const Partials& partials, int head,
                                 int64_t at, int d, float sum) {
  if (partials.only) {  // as combine() has it: this one counts whole, nothing else does
    a.out[blockIdx.x * a.out_stride + int64_t{head} * a.value_dim + d] = sum / partials.sum[at];
  } else {
    partials.out[at * a.value_dim + d] = sum;
  }
}

}  // namespace sluice::cuda
