// Attention of single rows over a paged cache. A block takes one partition of one row's sequence
// and the query heads that share a KV head, so that each key and value is read once; the last block
// of these heads combines the partitions, in order (attention_partials.cuh). Tokens that are new
// are rotated and stored on the way.
#include "kernels/cuda/attention_partials.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/rope.cuh"
#include "kernels/cuda/store_kv.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kAhead = 4;  // tokens that a lane reads before it uses the first

// The threads of a block share tokens: `lanes` neighbours take one, kChunk elements each.
struct Sharing {
  int lanes, groups;  // lanes * groups = kThreads
  int group, d;       // of this thread; its first element
  bool idle;          // a head has no elements for it
};
__device__ inline Sharing share_tokens(int dim) {
  int lanes = 1;
  while (lanes * kChunk < dim) lanes *= 2;
  const int thread = static_cast<int>(threadIdx.x), d = thread % lanes * kChunk;
  return {lanes, kThreads / lanes, thread / lanes, d, d >= dim};
}

// The part of the work that a block has.
struct Task {
  const int32_t* table;
  int kv_head, first_head, heads;  // query heads
  int query, begin, end;           // positions
};

// x[..] += what the lanes have that are so far away: sums of every 2 * step neighbours.
template <int kOuter, int kInner>
__device__ inline void add_lanes(float (&x)[kOuter][kInner], int step) {
#pragma unroll
  for (int i = 0; i < kOuter; ++i) {
#pragma unroll
    for (int j = 0; j < kInner; ++j) x[i][j] += __shfl_xor_sync(kAllLanes, x[i][j], step);
  }
}

// Keys and values of rows, which are still to be rotated and stored.
struct New {
  bool there;
  RopeTables rope;
  StoreArgs store;
};

// Brings the queries to shared memory, [heads][key_dim]. If there is a new token, they are rotated;
// a block that attends to it stores it, for which its key comes behind them. Blocks that share a KV
// head store the same.
template <DType kDType>
__device__ void take_rows(const AttentionArgs& a, const Task& task, const New& token, float* q) {
  const bool stores = token.there && task.end == task.query + 1;
  const int heads = task.heads + (stores ? 1 : 0), thread = static_cast<int>(threadIdx.x);
  const float* from = a.q + blockIdx.x * a.q_stride + int64_t{task.first_head} * a.key_dim;
  for (int i = thread; i < task.heads * a.key_dim; i += kThreads) q[i] = from[i];
  float* key = q + task.heads * a.key_dim;
  if (stores) {
    const float* of_row = head_of(token.store, 0, task.kv_head);
    for (int d = thread; d < a.key_dim; d += kThreads) key[d] = of_row[d];
  }
  __syncthreads();
  if (!token.there) return;
  for (int i = thread; i < heads * token.rope.half; i += kThreads)
    rotate_pair(token.rope, q + i / token.rope.half * a.key_dim, i % token.rope.half);
  __syncthreads();
  if (!stores) return;
  if (thread < 64) {
    const int which = thread / 32;
    store_head<kDType>(token.store, which, task.kv_head,
                       which == 0 ? key : head_of(token.store, 1, task.kv_head));
  }
  __syncthreads();
}

// scores[h][key - begin] for every key, masked by nothing: all are attended to. q: as take_rows()
// leaves them.
template <DType kDType, int kHeads>
__device__ void compute_scores(const AttentionArgs& a, const Task& task, const float* queries,
                               float* scores) {
  const Sharing s = share_tokens(a.key_dim);
  Vec<float, kChunk> q[kHeads] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= task.heads || s.idle) continue;
    const float* from = queries + h * a.key_dim + s.d;
    for (int i = 0; i < kChunk; ++i) q[h].at[i] = from[i];
  }
  for (int base = task.begin; base < task.end; base += kAhead * s.groups) {
    Vec<float, kChunk> key[kAhead] = {};
    float scale[kAhead] = {};
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int position = base + n * s.groups + s.group;
      if (position >= task.end || s.idle) continue;
      const TokenPlace at = token_place(a, task.table, task.kv_head, position);
      key[n] = load_chunk<kDType>(a.keys, a.key_dim, at, s.d);
      scale[n] = token_scale<kDType>(a, a.keys, a.key_dim, at, a.key_scale);
    }
    float dots[kAhead][kHeads] = {};
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kChunk; ++i) dots[n][h] = fmaf(q[h].at[i], key[n].at[i], dots[n][h]);
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (step < s.lanes) add_lanes(dots, step);
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int position = base + n * s.groups + s.group;
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        if (s.d != 0 || position >= task.end || h >= task.heads) continue;
        const int head = task.first_head + h;
        const float slope = a.alibi_slopes == nullptr ? 0 : a.alibi_slopes[head];
        scores[h * kPositions + position - task.begin] =
            finish_score(a, dots[n][h] * scale[n], slope, position, task.query);
      }
    }
  }
}

// sums[h] += the exponentials times the values that this thread reads.
template <DType kDType, int kHeads>
__device__ void weigh_values(const AttentionArgs& a, const Task& task, const float* weights,
                             float (&sums)[kHeads][kChunk]) {
  const Sharing s = share_tokens(a.value_dim);
  if (s.idle) return;
  for (int base = task.begin; base < task.end; base += kAhead * s.groups) {
    Vec<float, kChunk> value[kAhead] = {};
    float scale[kAhead] = {};
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int position = base + n * s.groups + s.group;
      if (position >= task.end) continue;
      const TokenPlace at = token_place(a, task.table, task.kv_head, position);
      value[n] = load_chunk<kDType>(a.values, a.value_row, at, s.d);
      scale[n] = token_scale<kDType>(a, a.values, a.value_row, at, a.value_scale);
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int position = base + n * s.groups + s.group;
      if (position >= task.end) continue;
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        if (h >= task.heads) continue;
        const float weight = weights[h * kPositions + position - task.begin] * scale[n];
        for (int i = 0; i < kChunk; ++i) sums[h][i] = fmaf(weight, value[n].at[i], sums[h][i]);
      }
    }
  }
}

// The threads' sums, added and stored. `shared` has room for [kWarps][kHeads][value_dim].
template <int kHeads>
__device__ void store_partial(const AttentionArgs& a, const Task& task, const Partials& partials,
                              float (&sums)[kHeads][kChunk], float* shared) {
  const Sharing s = share_tokens(a.value_dim);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    if (step >= s.lanes) add_lanes(sums, step);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (lane < s.lanes && !s.idle)
        shared[(warp * kHeads + h) * a.value_dim + s.d + i] = sums[h][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < task.heads * a.value_dim; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w * kHeads * a.value_dim + i];
    const int head = task.first_head + i / a.value_dim;
    const int64_t at = partial_at(a, partials, head, static_cast<int>(blockIdx.z));
    store_sum(a, partials, head, at, i % a.value_dim, sum);
  }
}

// Returns whether this is the last of `count` blocks that come here; what the others have stored
// can then be seen. The counter is zero before the first and behind the last one. `shared`: a word.
__device__ inline bool is_last(int32_t* counter, int count, int* shared) {
  __threadfence();
  __syncthreads();  // nobody reads its memory any more
  if (threadIdx.x == 0) {
    *shared = atomicAdd(counter, 1) + 1 == count ? 1 : 0;
    if (*shared == 1) *counter = 0;
  }
  __syncthreads();
  if (*shared == 0) return false;
  __threadfence();
  return true;
}

// Floats of scores, or of the warps' sums.
SLUICE_HD constexpr int scratch_floats(int heads, int value_dim) {
  return heads * (kPositions > kWarps * value_dim ? kPositions : kWarps * value_dim);
}

// x: rows; y: kHeads query heads of one KV head; z: partitions.
template <DType kDType, int kHeads>
__global__ void __launch_bounds__(kThreads)
    partition_kernel(AttentionArgs a, const int32_t* sequences, const int32_t* positions,
                     Partials partials, int32_t* arrived, New token) {
  wait_for_earlier();
  const int query = positions[blockIdx.x], first = first_key(a, query);
  const int tiles = (a.group + kHeads - 1) / kHeads, tile = static_cast<int>(blockIdx.y) % tiles;
  Task task;
  task.table = a.tables + sequences[blockIdx.x] * a.table_stride;
  task.kv_head = static_cast<int>(blockIdx.y) / tiles;
  task.first_head = task.kv_head * a.group + tile * kHeads;
  task.heads = a.group - tile * kHeads < kHeads ? a.group - tile * kHeads : kHeads;
  task.query = query;
  const int begin = static_cast<int>(blockIdx.z) * kPositions, end = begin + kPositions;
  task.begin = begin > first ? begin : first;
  task.end = end < query + 1 ? end : query + 1;
  if (task.begin >= task.end) return;
  float* shared = &shared_memory<float>();
  float* queries = shared + scratch_floats(kHeads, a.value_dim);
  take_rows<kDType>(a, task, token, queries);
  compute_scores<kDType, kHeads>(a, task, queries, shared);
  __syncthreads();
  soften<kWarps>(a, task.first_head, task.heads, task.end - task.begin, partials, shared);
  __syncthreads();
  float sums[kHeads][kChunk] = {};
  weigh_values<kDType, kHeads>(a, task, shared, sums);
  __syncthreads();  // the scores' memory is used again
  store_partial<kHeads>(a, task, partials, sums, shared);
  if (partials.only) return;
  const Attended of = attended(a, query);
  if (!is_last(arrived + int64_t{blockIdx.x} * gridDim.y + blockIdx.y, of.end - of.first,
               reinterpret_cast<int*>(shared)))
    return;
  for (int i = static_cast<int>(threadIdx.x); i < task.heads * a.value_dim; i += kThreads)
    combine_element(a, partials, task.first_head + i / a.value_dim, of, i % a.value_dim);
}

template <DType kDType, int kHeads>
void launch_decode(const AttentionArgs& args, const Partials& partials, const DecodeRows& rows,
                   int64_t count, const New& token, Stream stream) {
  const int tiles = (args.group + kHeads - 1) / kHeads;
  const int floats = scratch_floats(kHeads, args.value_dim) + (kHeads + 1) * args.key_dim;
  const Launch at{{static_cast<uint32_t>(count), static_cast<uint32_t>(args.kv_heads * tiles),
                   static_cast<uint32_t>(partials.partitions)},
                  {kThreads},
                  static_cast<uint32_t>(floats) * 4};
  launch_early(partition_kernel<kDType, kHeads>, at, stream, args, rows.sequences, rows.positions,
               partials, rows.arrived, token);
}

New new_of(const Tensor& q, const NewTokens* tokens, const KvCache& cache) {
  if (tokens == nullptr) return {};
  check(q.rows == tokens->keys.rows, "attention: new rows of all three");
  check_rope(q, cache.key_dim, tokens->cos, tokens->sin);
  check_rope(tokens->keys, cache.key_dim, tokens->cos, tokens->sin);
  return {true, rope_tables(tokens->pairing, tokens->cos, tokens->sin),
          store_args(tokens->keys, tokens->values, tokens->slots, cache)};
}

}  // namespace

void attention_decode(Tensor q, const KvCache& cache, const BlockTables& tables,
                      const DecodeRows& rows, const AttentionSettings& settings,
                      std::byte* workspace, Tensor out, Stream stream, const NewTokens* tokens) {
  const AttentionArgs args = attention_args(q, cache, tables, settings, out);
  if (q.rows == 0) return;
  check(!is_wide(cache) && args.chosen == nullptr, "heads that attention_wide need not take");
  const Partials partials = partials_in(workspace, args, q.rows, rows.longest);
  check(partials.only || rows.arrived != nullptr, "counters of partitions");
  const New token = new_of(q, tokens, cache);
  with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(cache.dtype, [&](auto dtype) {
    auto with = [&](auto heads) {
      launch_decode<dtype(), heads()>(args, partials, rows, q.rows, token, stream);
    };
    args.group == 1   ? with(Constant<1>{})
    : args.group <= 4 ? with(Constant<4>{})
                      : with(Constant<8>{});
  });
}

}  // namespace sluice::cuda
