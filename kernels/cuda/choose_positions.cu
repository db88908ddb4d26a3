// The positions that an indexer chooses (arXiv:2512.02556, 2.1): scores of a row's positions, tile
// by tile, then those from the k-th largest on, in order.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kOfWarp = 8;               // positions
constexpr int kTile = kWarps * kOfWarp;  // of a block
constexpr int kHeads = 32;               // at a time, one a lane
constexpr int kDims = 64;                // elements of keys and queries at a time
constexpr int kPart = 4;                 // elements that a thread reads at once
constexpr int kChoosing = 512;           // threads of a row

struct IndexArgs {
  CacheArgs cache;
  const float* q;
  const float* weights;
  int64_t q_stride, weights_stride;
  int heads, most;
  const int32_t* sequences;
  const int32_t* positions;
  float* scores;
  int64_t scores_stride;
};

struct Shared {
  float keys[kTile][kDims];
  float q[kHeads][kDims + kPart];  // eight lanes' vectors lie in all banks
  float scales[kTile];             // of keys
};

// Elements [d, d + kDims) of the tile's keys, zeros where there are none.
template <DType kDType>
__device__ void load_keys(const CacheArgs& a, const int32_t* table, int begin, int end, int d,
                          Shared& shared) {
  constexpr int kParts = kDims / kPart;
  constexpr int kBytes = sizeof(typename Element<kDType>::Code);
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kParts; i += kThreads) {
    const int token = i / kParts, at = i % kParts * kPart;
    Vec<float, kPart> key = {};
    if (begin + token < end && d + at < a.key_dim) {
      const TokenPlace place = token_place(a, table, 0, begin + token);
      const int64_t element = int64_t{place.token} * a.key_dim + d + at;
      key = load_codes<kDType, kPart>(a.keys + place.block + element * kBytes);
      if (d + at == 0)
        shared.scales[token] = token_scale<kDType>(a, a.keys, a.key_dim, place, a.key_scale);
    }
    store_as(&shared.keys[token][at], key);
  }
}

// The same elements of kHeads queries from `head` on.
__device__ inline void load_queries(const IndexArgs& a, int head, int d, Shared& shared) {
  const float* q = a.q + blockIdx.x * a.q_stride;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kDims; i += kThreads) {
    const int h = i / kDims, at = i % kDims;
    const bool there = head + h < a.heads && d + at < a.cache.key_dim;
    shared.q[h][at] = there ? q[int64_t{head + h} * a.cache.key_dim + d + at] : 0;
  }
}

// dots[p] += the products of this lane's query and key p of the warp.
__device__ inline void multiply_keys(const Shared& shared, float (&dots)[kOfWarp]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int at = 0; at < kDims; at += kPart) {
    const auto q = load_as<Vec<float, kPart>>(&shared.q[lane][at]);
#pragma unroll
    for (int p = 0; p < kOfWarp; ++p) {
      const auto key = load_as<Vec<float, kPart>>(&shared.keys[warp * kOfWarp + p][at]);
#pragma unroll
      for (int i = 0; i < kPart; ++i) dots[p] = fmaf(q.at[i], key.at[i], dots[p]);
    }
  }
}

// x: rows; y: tiles of positions. Rows whose positions are all chosen have no scores.
template <DType kDType>
__global__ void __launch_bounds__(kThreads, 2) index_kernel(IndexArgs a) {
  wait_for_earlier();
  const int begin = static_cast<int>(blockIdx.y) * kTile;
  const int end = (a.positions[blockIdx.x] + 1) / a.cache.tokens;
  if (end <= a.most || begin >= end) return;
  auto& shared = shared_memory<Shared>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t* table = a.cache.tables + a.sequences[blockIdx.x] * a.cache.table_stride;
  float scores[kOfWarp] = {};
  for (int head = 0; head < a.heads; head += kHeads) {
    float dots[kOfWarp] = {};
    for (int d = 0; d < a.cache.key_dim; d += kDims) {
      __syncthreads();  // what was there is used
      load_keys<kDType>(a.cache, table, begin, end, d, shared);
      load_queries(a, head, d, shared);
      __syncthreads();
      multiply_keys(shared, dots);
    }
    if (head + lane >= a.heads) continue;
    const float weight = a.weights[blockIdx.x * a.weights_stride + head + lane];
#pragma unroll
    for (int p = 0; p < kOfWarp; ++p) scores[p] += weight * fmaxf(dots[p], 0);
  }
#pragma unroll
  for (int p = 0; p < kOfWarp; ++p) {
    const int token = warp * kOfWarp + p;
    const float sum = warp_reduce(scores[p], Plus{});
    if (lane != p || begin + token >= end) continue;
    const float score = sum * shared.scales[token];
    a.scores[blockIdx.x * a.scores_stride + begin + token] =
        score == score ? score : kMinusInfinity;
  }
}

struct Counts {
  Selection selection;
  int greater[kChoosing / 32], equal[kChoosing / 32];  // of each warp
};

// The largest scores of a row, of equal ones the first, in the order of their positions. Each
// position is behind all greater ones before it, and as many equal ones as are wanted.
__device__ inline void write_chosen(const float* scores, int count, Counts& shared, int32_t* out) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t least = shared.selection.least, before = (1u << lane) - 1;
  const int wanted = static_cast<int>(shared.selection.left);
  int greater = 0, equal = 0;  // before the tile, then before this position
  for (int base = 0; base < count; base += kChoosing) {
    const int c = base + static_cast<int>(threadIdx.x);
    const uint32_t code = c < count ? ordered(scores[c]) : 0;
    const bool is_greater = c < count && code > least, is_equal = c < count && code == least;
    const uint32_t all_greater = __ballot_sync(kAllLanes, is_greater);
    const uint32_t all_equal = __ballot_sync(kAllLanes, is_equal);
    if (lane == 0) {
      shared.greater[warp] = __popc(all_greater);
      shared.equal[warp] = __popc(all_equal);
    }
    __syncthreads();
    int tile_greater = 0, tile_equal = 0;
    int own_greater = greater + __popc(all_greater & before);
    int own_equal = equal + __popc(all_equal & before);
    for (int w = 0; w < kChoosing / 32; ++w) {
      if (w == warp) {
        own_greater += tile_greater;
        own_equal += tile_equal;
      }
      tile_greater += shared.greater[w];
      tile_equal += shared.equal[w];
    }
    if (is_greater || (is_equal && own_equal < wanted))
      out[own_greater + (own_equal < wanted ? own_equal : wanted)] = c;
    greater += tile_greater;
    equal += tile_equal;
    __syncthreads();  // the counts are written again
  }
}

// One block a row.
__global__ void __launch_bounds__(kChoosing)
    choose_kernel(const float* scores, int64_t scores_stride, const int32_t* positions, int tokens,
                  int most, int32_t* out) {
  wait_for_earlier();
  const int count = (positions[blockIdx.x] + 1) / tokens;
  out += int64_t{blockIdx.x} * most;
  if (count <= most) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kChoosing) out[i] = i;
    return;
  }
  auto& shared = shared_memory<Counts>();
  const float* row = scores + blockIdx.x * scores_stride;
  select(row, count, static_cast<uint32_t>(most), shared.selection);
  write_chosen(row, count, shared, out);
}

}  // namespace

uint64_t choice_workspace_bytes(int64_t rows, int64_t longest) {
  return static_cast<uint64_t>(rows * longest) * sizeof(float);
}

void choose_positions(Tensor q, Tensor weights, const KvCache& keys, const BlockTables& tables,
                      const DecodeRows& rows, const ChosenPositions& out, std::byte* workspace,
                      Stream stream) {
  check(keys.kv_heads == 1 && weights.rows == q.rows && q.cols == weights.cols * keys.key_dim,
        "choose_positions: a query and a weight of each head");
  check(out.positions != nullptr && out.most > 0, "choose_positions: room for what is chosen");
  if (q.rows == 0) return;
  const auto count = static_cast<uint32_t>(q.rows);
  auto* scores = reinterpret_cast<float*>(workspace);
  const int64_t longest = rows.longest / keys.tokens;
  if (longest > out.most) {
    const IndexArgs args{cache_args(keys, tables),
                         q.row<float>(0),
                         weights.row<float>(0),
                         q.stride,
                         weights.stride,
                         static_cast<int>(weights.cols),
                         static_cast<int>(out.most),
                         rows.sequences,
                         rows.positions,
                         scores,
                         rows.longest};
    const auto tiles = static_cast<uint32_t>(ceil_div(longest, kTile));
    with_dtype<DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2>(
        keys.dtype, [&](auto dtype) {
          launch_early(index_kernel<dtype()>, {{count, tiles}, {kThreads}, sizeof(Shared)}, stream,
                       args);
        });
  }
  launch_early(choose_kernel, {{count}, {kChoosing}, sizeof(Counts)}, stream, scores, rows.longest,
               rows.positions, static_cast<int>(keys.tokens), static_cast<int>(out.most),
               out.positions);
}

}  // namespace sluice::cuda
