// Attention of heads of any size that kernels take: to latent keys (MLA, arXiv:2405.04434), whose
// first elements are the values, and to positions that a layer has chosen (arXiv:2512.02556), too.
// A block takes one partition of one row's positions, and kHeads query heads; the row's other heads
// read the same keys from L2. All arithmetic is float32, for prompts as for single rows.
#include "kernels/cuda/attention_partials.cuh"
#include "kernels/cuda/dispatch.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kHeads = 8;
constexpr int kAhead = 2;  // tokens that a warp takes at a time
constexpr int kPart = 4;   // elements of a key that a lane reads at once, and tokens of values
constexpr int kPair = 2;   // elements of a value that a thread sums

struct Shared {
  TokenPlace places[kPositions];
  float key_scales[kPositions], value_scales[kPositions];
  float scores[kHeads][kPositions];  // queries [kHeads][key_dim] follow
};

// The part of the work that a block has.
struct Task {
  int kv_head, first_head, heads;  // query heads
  int query;                       // its position
  int begin, end;                  // of the row's positions, or of those chosen
  __device__ int count() const { return end - begin; }
};

__device__ inline int position_of(const AttentionArgs& a, const Task& task, int i) {
  return a.chosen == nullptr ? task.begin + i
                             : a.chosen[int64_t{blockIdx.x} * a.most + task.begin + i];
}

// Finds the keys and values, and brings the queries to shared memory.
template <DType kDType>
__device__ void prepare(const AttentionArgs& a, const Task& task, const int32_t* table,
                        Shared& shared, float* q) {
  for (int i = static_cast<int>(threadIdx.x); i < task.count(); i += kThreads) {
    const TokenPlace at = token_place(a, table, task.kv_head, position_of(a, task, i));
    shared.places[i] = at;
    shared.key_scales[i] = token_scale<kDType>(a, a.keys, a.key_dim, at, a.key_scale);
    shared.value_scales[i] = token_scale<kDType>(a, a.values, a.value_row, at, a.value_scale);
  }
  const float* from = a.q + blockIdx.x * a.q_stride + int64_t{task.first_head} * a.key_dim;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * a.key_dim; i += kThreads)
    q[i] = i < task.heads * a.key_dim ? from[i] : 0;
}

// kCount elements of a token from element d on.
template <DType kDType, int kCount>
__device__ Vec<float, kCount> load_part(const std::byte* cache, const TokenPlace& at, int row,
                                        int d) {
  constexpr int64_t kBytes = sizeof(typename Element<kDType>::Code);
  return load_codes<kDType, kCount>(cache + at.block + (int64_t{at.token} * row + d) * kBytes);
}

// Sums each of a lane's numbers over the warp; lane i gets the sum of number i / (32 / kCount).
template <int kCount, int kStep = 16>
__device__ float sum_each(float (&x)[kCount]) {
  if constexpr (kCount > 1) {
    const bool upper = (threadIdx.x & kStep) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float keep = upper ? x[i + kCount / 2] : x[i], give = upper ? x[i] : x[i + kCount / 2];
      half[i] = keep + __shfl_xor_sync(kAllLanes, give, kStep);
    }
    return sum_each<kCount / 2, kStep / 2>(half);
  } else {
    float sum = x[0];
#pragma unroll
    for (int step = kStep; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    return sum;
  }
}

// Scores of all keys; a warp takes kAhead at a time.
template <DType kDType>
__device__ void compute_scores(const AttentionArgs& a, const Task& task, Shared& shared,
                               const float* q) {
  constexpr int kSums = kAhead * kHeads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int base = warp * kAhead; base < task.count(); base += kWarps * kAhead) {
    float dots[kSums] = {};
    for (int d = lane * kPart; d < a.key_dim; d += 32 * kPart) {
      Vec<float, kPart> key[kAhead] = {};
#pragma unroll
      for (int n = 0; n < kAhead; ++n) {
        if (base + n < task.count())
          key[n] = load_part<kDType, kPart>(a.keys, shared.places[base + n], a.key_dim, d);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const auto by = load_as<Vec<float, kPart>>(q + h * a.key_dim + d);
#pragma unroll
        for (int n = 0; n < kAhead; ++n) {
#pragma unroll
          for (int i = 0; i < kPart; ++i)
            dots[n * kHeads + h] = fmaf(by.at[i], key[n].at[i], dots[n * kHeads + h]);
        }
      }
    }
    const float dot = sum_each(dots);
    const int mine = lane / (32 / kSums), i = base + mine / kHeads, h = mine % kHeads;
    if (lane % (32 / kSums) != 0 || i >= task.count() || h >= task.heads) continue;
    const int head = task.first_head + h;
    const float slope = a.alibi_slopes == nullptr ? 0 : a.alibi_slopes[head];
    shared.scores[h][i] =
        finish_score(a, dot * shared.key_scales[i], slope, position_of(a, task, i), task.query);
  }
}

// Weights of the codes of values; zeros behind the last one, up to a whole part.
template <DType kDType>
__device__ void scale_weights(const Task& task, Shared& shared) {
  const int end = (task.count() + kPart - 1) / kPart * kPart;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * end; i += kThreads) {
    const int h = i / end, at = i % end;
    const bool there = h < task.heads && at < task.count();
    if (!there) shared.scores[h][at] = 0;
    if (sizeof(typename Element<kDType>::Code) == 1 && there)
      shared.scores[h][at] *= shared.value_scales[at];
  }
}

// A thread sums kPair elements of the values of all tokens, in order.
template <DType kDType>
__device__ void weigh_values(const AttentionArgs& a, const Task& task, const Partials& partials,
                             const Shared& shared) {
  for (int d = static_cast<int>(threadIdx.x) * kPair; d < a.value_dim; d += kThreads * kPair) {
    float sums[kHeads][kPair] = {};
    for (int base = 0; base < task.count(); base += kPart) {
      Vec<float, kPair> value[kPart] = {};
#pragma unroll
      for (int n = 0; n < kPart; ++n) {
        if (base + n < task.count())
          value[n] = load_part<kDType, kPair>(a.values, shared.places[base + n], a.value_row, d);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const auto weight = load_as<Vec<float, kPart>>(&shared.scores[h][base]);
#pragma unroll
        for (int n = 0; n < kPart; ++n) {
#pragma unroll
          for (int i = 0; i < kPair; ++i)
            sums[h][i] = fmaf(weight.at[n], value[n].at[i], sums[h][i]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= task.heads) continue;
      const int head = task.first_head + h;
      const int64_t at = partial_at(a, partials, head, static_cast<int>(blockIdx.z));
#pragma unroll
      for (int i = 0; i < kPair; ++i) store_sum(a, partials, head, at, d + i, sums[h][i]);
    }
  }
}

// x: rows; y: kHeads query heads of one KV head; z: partitions.
template <DType kDType>
__global__ void __launch_bounds__(kThreads, 2)
    wide_kernel(AttentionArgs a, const int32_t* sequences, const int32_t* positions,
                Partials partials) {
  wait_for_earlier();
  const int tiles = (a.group + kHeads - 1) / kHeads, tile = static_cast<int>(blockIdx.y) % tiles;
  Task task;
  task.kv_head = static_cast<int>(blockIdx.y) / tiles;
  task.first_head = task.kv_head * a.group + tile * kHeads;
  task.heads = a.group - tile * kHeads < kHeads ? a.group - tile * kHeads : kHeads;
  task.query = positions[blockIdx.x];
  const int first = first_key(a, task.query), last = key_end(a, task.query);
  const int begin = static_cast<int>(blockIdx.z) * kPositions, end = begin + kPositions;
  task.begin = begin > first ? begin : first;
  task.end = end < last ? end : last;
  if (task.begin >= task.end) return;
  auto& shared = shared_memory<Shared>();
  auto* q = reinterpret_cast<float*>(&shared + 1);
  prepare<kDType>(a, task, a.tables + sequences[blockIdx.x] * a.table_stride, shared, q);
  __syncthreads();
  compute_scores<kDType>(a, task, shared, q);
  __syncthreads();
  soften<kWarps>(a, task.first_head, task.heads, task.count(), partials, shared.scores[0]);
  __syncthreads();
  scale_weights<kDType>(task, shared);
  __syncthreads();
  weigh_values<kDType>(a, task, partials, shared);
}

void launch_wide(const AttentionArgs& args, DType dtype, const DecodeRows& rows, int64_t partitions,
                 const Partials& partials, int64_t count, Stream stream) {
  const auto tiles = static_cast<uint32_t>(args.kv_heads * ceil_div(args.group, kHeads));
  const Launch at{
      {static_cast<uint32_t>(count), tiles, static_cast<uint32_t>(partitions)},
      {kThreads},
      static_cast<uint32_t>(sizeof(Shared)) + static_cast<uint32_t>(kHeads * args.key_dim) * 4};
  with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(dtype, [&](auto of) {
    launch_early(wide_kernel<of()>, at, stream, args, rows.sequences, rows.positions, partials);
  });
}

}  // namespace

void attention_wide(Tensor q, const KvCache& cache, const BlockTables& tables,
                    const DecodeRows& rows, const AttentionSettings& settings, std::byte* workspace,
                    Tensor out, Stream stream) {
  AttentionArgs args = attention_args(q, cache, tables, settings, out);
  if (q.rows == 0) return;
  const MoreTokens* more = settings.more;
  const int64_t own = ceil_div(rows.longest, kPartition);
  const int64_t others = more == nullptr ? 0 : ceil_div(more->longest(rows.longest), kPartition);
  const Partials partials = partials_in(workspace, args, q.rows, rows.longest, others);
  if (more != nullptr) {
    args.more_tokens = static_cast<int>(more->cache.tokens);
    args.more_most = static_cast<int>(more->chosen.most);
    args.more_part = static_cast<int>(own);
  }
  launch_wide(args, cache.dtype, rows, own, partials, q.rows, stream);
  if (others > 0) {
    AttentionArgs other = args;
    static_cast<CacheArgs&>(other) = cache_args(more->cache, {more->tables, 1});
    other.window = other.chunk = 0;
    other.chosen = more->chosen.most > 0 ? more->chosen.positions : nullptr;
    other.most = args.more_most;
    other.first_part = args.more_part;
    launch_wide(other, cache.dtype, {more->sequences, rows.positions}, others, partials, q.rows,
                stream);
  }
  combine(args, rows.positions, partials, q.rows, stream);
}

}  // namespace sluice::cuda
