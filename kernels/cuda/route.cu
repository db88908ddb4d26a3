// The choice of experts: a warp a row, whose scores lie in shared memory.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kLanes = 32;

struct RouteArgs {
  const float* logits;
  int64_t stride;
  int experts;
  RouterParams params;
  ExpertChoices out;
};

// The dynamic arrays of shared memory: two of `experts` elements.
struct RouteArrays {
  float* scores;
  uint32_t* keys;  // in the order of what is chosen by; 0: not to be chosen (again)
};

__device__ inline void score_row(const RouteArgs& a, const float* row, const RouteArrays& s) {
  const int lane = static_cast<int>(threadIdx.x);
  float total = 1;
  if (a.params.score == RouterScore::softmax) {
    float largest = -INFINITY;
    for (int e = lane; e < a.experts; e += kLanes) largest = fmaxf(largest, row[e]);
    largest = warp_reduce(largest, Larger{});
    total = 0;
    for (int e = lane; e < a.experts; e += kLanes) {
      s.scores[e] = expf(row[e] - largest);
      total += s.scores[e];
    }
    total = warp_reduce(total, Plus{});
  } else if (a.params.score == RouterScore::sqrt_softplus) {
    for (int e = lane; e < a.experts; e += kLanes) s.scores[e] = sqrtf(softplus(row[e]));
  } else {
    for (int e = lane; e < a.experts; e += kLanes) s.scores[e] = 1 / (1 + expf(-row[e]));
  }
  for (int e = lane; e < a.experts; e += kLanes) {
    s.scores[e] /= total;
    const float by = a.params.chooses_logits ? row[e] : s.scores[e];
    const uint32_t key = ordered(a.params.bias != nullptr ? by + a.params.bias[e] : by);
    s.keys[e] = key == kNanCode ? 1 : key;  // chosen last
  }
  __syncthreads();
}

__device__ inline float from_key(uint32_t key) {
  constexpr uint32_t kSign = 0x80000000;
  return std::bit_cast<float>(key & kSign ? key ^ kSign : ~key);
}

// Finds the largest key of some, and of equal ones the first; the same in each lane.
__device__ inline uint32_t largest_of(const uint32_t* keys, int count) {
  uint32_t largest = 0, at = 0xffffffff;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kLanes) {
    const uint32_t key = keys[i];
    if (key <= largest && at != 0xffffffff) continue;
    largest = key;
    at = static_cast<uint32_t>(i);
  }
  const uint32_t best = __reduce_max_sync(kAllLanes, largest);
  return __reduce_min_sync(kAllLanes, largest == best ? at : 0xffffffff);
}

// Leaves the experts of top_k_groups groups. A lane adds up each of its groups.
__device__ inline void keep_groups(const RouteArgs& a, const RouteArrays& s, uint32_t* sums) {
  const int groups = static_cast<int>(a.params.groups), size = a.experts / groups;
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += kLanes) {
    uint32_t first = 0, second = 0;
    for (int i = 0; i < size; ++i) {
      const uint32_t key = s.keys[g * size + i];
      second = Larger{}(second, key < first ? key : first);
      first = Larger{}(first, key);
    }
    const bool both = size > 1 && !a.params.groups_by_largest;
    sums[g] = both ? ordered(from_key(first) + from_key(second)) : first;
  }
  __syncthreads();
  for (int i = 0; i < a.params.top_k_groups; ++i) {
    const uint32_t group = largest_of(sums, groups);
    __syncthreads();
    if (threadIdx.x == 0) sums[group] = 0;
    __syncthreads();
  }
  for (int e = static_cast<int>(threadIdx.x); e < a.experts; e += kLanes) {
    if (sums[e / size] != 0) s.keys[e] = 0;
  }
  __syncthreads();
}

// The experts of the row's token, as a table has them. What is none's number is the nearest one's;
// one that is there already stands for the next that is not.
__device__ inline void look_up(const RouteArgs& a, int32_t* chosen) {
  const int top_k = static_cast<int>(a.params.top_k);
  const float* of_token = a.params.table + int64_t{a.params.ids.data()[blockIdx.x]} * top_k;
  const auto last = static_cast<float>(a.experts - 1);
  for (int i = static_cast<int>(threadIdx.x); i < top_k; i += kLanes)
    chosen[i] = static_cast<int32_t>(of_token[i] >= 0 ? fminf(of_token[i], last) : 0);
  __syncthreads();
  for (int i = 1; i < top_k && threadIdx.x == 0; ++i) {
    for (int j = 0; j < i;) {
      const bool again = chosen[j] == chosen[i];
      if (again) chosen[i] = (chosen[i] + 1) % a.experts;
      j = again ? 0 : j + 1;
    }
  }
  __syncthreads();
}

// Chooses the experts of the largest keys, and sorts them by rising ids: an id's place is the
// number of smaller ones, and of equal ones before it. `chosen` and `sorted` have room for them.
__device__ inline void choose(const RouteArgs& a, const RouteArrays& s, int32_t* chosen,
                              int32_t* sorted) {
  const int top_k = static_cast<int>(a.params.top_k), lane = static_cast<int>(threadIdx.x);
  if (a.params.table != nullptr) look_up(a, chosen);
  for (int i = 0; i < top_k && a.params.table == nullptr; ++i) {
    const uint32_t expert = largest_of(s.keys, a.experts);
    __syncthreads();
    if (lane == 0) {
      s.keys[expert] = 0;
      chosen[i] = static_cast<int32_t>(expert);
    }
    __syncthreads();
  }
  for (int i = lane; i < top_k; i += kLanes) {
    int place = 0;
    for (int j = 0; j < top_k; ++j)
      place += chosen[j] < chosen[i] || (chosen[j] == chosen[i] && j < i) ? 1 : 0;
    sorted[place] = chosen[i];
  }
  __syncthreads();
}

// Choices of a sparse mixer, one after the other; `chosen` and `sorted` as
// above.
__device__ inline void mix_sparsely(const RouteArgs& a, const float* row, const RouteArrays& s,
                                    int32_t* chosen, int32_t* sorted) {
  const int top_k = static_cast<int>(a.params.top_k), lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < a.experts; e += kLanes) {
    const uint32_t key = ordered(row[e]);
    s.keys[e] = key == kNanCode ? 1 : key;
    s.scores[e] = 0;
  }
  __syncthreads();
  for (int i = 0; i < top_k; ++i) {
    const auto best = static_cast<int>(largest_of(s.keys, a.experts));
    const float largest = row[best];
    float total = 0;
    for (int e = lane; e < a.experts; e += kLanes) {
      const bool near = !((largest - row[e]) / fmaxf(fabsf(row[e]), largest) > 2 * a.params.jitter);
      if (near && s.keys[e] != 0) total += expf(row[e] - largest);
    }
    total = warp_reduce(total, Plus{});
    __syncthreads();
    if (lane == 0) {
      s.keys[best] = 0;
      s.scores[best] = 1 / total;
      chosen[i] = best;
    }
    __syncthreads();
  }
  for (int i = lane; i < top_k; i += kLanes) {
    int place = 0;
    for (int j = 0; j < top_k; ++j) place += chosen[j] < chosen[i] ? 1 : 0;
    sorted[place] = chosen[i];
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kLanes) route_kernel(RouteArgs a) {
  wait_for_earlier();
  auto* memory = &shared_memory<uint32_t>();
  const RouteArrays s{reinterpret_cast<float*>(memory), memory + a.experts};
  auto* chosen = reinterpret_cast<int32_t*>(memory + 2 * a.experts + a.params.groups);
  int32_t* sorted = chosen + a.params.top_k;
  const float* row = a.logits + blockIdx.x * a.stride;
  if (a.params.score == RouterScore::sparse_mixer) {
    mix_sparsely(a, row, s, chosen, sorted);
  } else {
    score_row(a, row, s);
    if (a.params.groups > 1) keep_groups(a, s, memory + 2 * a.experts);
    choose(a, s, chosen, sorted);
  }
  const int top_k = static_cast<int>(a.params.top_k);
  float sum = 0;
  for (int i = 0; i < top_k; ++i) sum += s.scores[sorted[i]];
  for (int i = static_cast<int>(threadIdx.x); i < top_k; i += kLanes) {
    const float score = s.scores[sorted[i]];
    a.out.experts[int64_t{blockIdx.x} * top_k + i] = sorted[i];
    const float weight =
        (a.params.normalized ? score / (sum + a.params.added) : score) * a.params.factor;
    a.out.weights[int64_t{blockIdx.x} * top_k + i] =
        a.params.factors != nullptr ? weight * a.params.factors[sorted[i]] : weight;
  }
}

}  // namespace

void route(Tensor logits, const RouterParams& params, const ExpertChoices& out, Stream stream) {
  check_route(logits, params, out);
  if (logits.rows == 0) return;
  const auto elements = static_cast<uint32_t>(2 * (logits.cols + params.top_k) + params.groups);
  launch_early(
      route_kernel,
      {{static_cast<uint32_t>(logits.rows)}, {kLanes}, elements * uint32_t{sizeof(float)}}, stream,
      RouteArgs{logits.row<float>(0), logits.stride, static_cast<int>(logits.cols), params, out});
}

}  // namespace sluice::cuda
