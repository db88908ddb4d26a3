// Attention of many rows of a sequence by tensor cores, as FlashAttention-2 (arXiv:2307.08691)
// arranges it: a warp keeps 16 query rows and their outputs in registers while keys and values pass
// by in tiles of shared memory, the next one on its way while one is computed, and the softmax is
// corrected as larger scores appear. Scores are logarithms to base 2.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kWarps * 16;  // query rows of a block
constexpr int kStages = 2;          // tiles that there is room for
constexpr float kLog2E = 1.44269504088896341f;

// Positions of a tile of keys: as many as leave registers and shared memory for two blocks.
template <int kDim>
constexpr int kTile = kDim > 128 ? 32 : 64;

// A query, or a token's key or value with the scale of its codes. The scale's 16 bytes are also
// what moves rows apart, so that eight of them lie in all banks.
template <int kDim>
struct alignas(16) Row {
  uint16_t at[kDim];
  float scale;
};

template <int kDim>
struct Shared {
  Row<kDim> q[kRows];
  Row<kDim> keys[kStages][kTile<kDim>];
  Row<kDim> values[kStages][kTile<kDim>];
};
static_assert(sizeof(Shared<256>) <= kMostSharedBytes, "the widest heads fit any GPU");

// The part of the work that a block has.
struct Task {
  const int32_t* table;
  int head, kv_head;
  int row, rows;   // of q and out
  int position;    // of the first row
  int first, end;  // keys that any row attends to
  int every;       // from here to `position` all rows attend to all
  float slope;
};

__device__ inline Vec<uint32_t, kChunk / 2> to_bf16(const Vec<float, kChunk>& x) {
  Vec<uint32_t, kChunk / 2> pairs;
  for (int i = 0; i < kChunk; i += 2) pairs.at[i / 2] = bf16x2_from_floats(x.at[i], x.at[i + 1]);
  return pairs;
}

// The block's query rows; zeros behind them and behind key_dim.
template <int kDim>
__device__ void load_queries(const AttentionArgs& a, const Task& task, Shared<kDim>& shared) {
  constexpr int kChunks = kDim / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, d = i % kChunks * kChunk;
    Vec<float, kChunk> x = {};
    if (row < task.rows && d < a.key_dim) {
      const float* from = a.q + (task.row + row) * a.q_stride + task.head * a.key_dim + d;
      for (int j = 0; j < kChunk; ++j) x.at[j] = from[j];
    }
    store_as(&shared.q[row].at[d], to_bf16(x));
  }
}

// Copies a thread's part of a token, rounded to bf16, or zeros where the token is not there. Codes
// of 8-bit elements are exact; their scales are applied to the scores and the weights.
template <DType kDType>
__device__ void load_part(const std::byte* cache, int row, const TokenPlace& at, int d, bool there,
                          uint16_t* to) {
  if constexpr (kDType == DType::bf16) {
    const auto* from = reinterpret_cast<const uint16_t*>(cache + at.block);
    copy_async(to, there ? from + int64_t{at.token} * row + d : from, there);
  } else {
    const Vec<float, kChunk> none = {};
    store_as(to, to_bf16(there ? load_chunk<kDType>(cache, row, at, d) : none));
  }
}

// Keys and values from position `begin`; zeros where nobody attends. They are there when copies
// have been waited for.
template <DType kDType, int kDim>
__device__ void load_tile(const AttentionArgs& a, const Task& task, int begin, int stage,
                          Shared<kDim>& shared) {
  constexpr int kChunks = kDim / kChunk;
  static_assert(kThreads % kChunks == 0, "a thread reads the same elements of all its tokens");
  const int d = static_cast<int>(threadIdx.x) % kChunks * kChunk;
#pragma unroll
  for (int i = 0; i < kTile<kDim> * kChunks / kThreads; ++i) {
    const int token = i * (kThreads / kChunks) + static_cast<int>(threadIdx.x) / kChunks;
    const int position = begin + token;
    const bool there = position >= task.first && position < task.end;
    TokenPlace at{0, 0};
    if (there) at = token_place(a, task.table, task.kv_head, position);
    Row<kDim>&key = shared.keys[stage][token], &value = shared.values[stage][token];
    load_part<kDType>(a.keys, a.key_dim, at, d, there && d < a.key_dim, &key.at[d]);
    load_part<kDType>(a.values, a.value_row, at, d, there && d < a.value_dim, &value.at[d]);
    if (kDType == DType::bf16 || d != 0) continue;
    key.scale = there ? token_scale<kDType>(a, a.keys, a.key_dim, at, a.key_scale) : 0;
    value.scale = there ? token_scale<kDType>(a, a.values, a.value_row, at, a.value_scale) : 0;
  }
}

// scores = Q K^T of the warp's rows and the tile. Lane 4g + t has, of each 16 x 8 part, rows g and
// g + 8, columns 2t and 2t + 1 (PTX ISA, fragment D).
template <int kDim>
__device__ void multiply_keys(const Shared<kDim>& shared, int stage,
                              float (&scores)[kTile<kDim> / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    uint32_t q[4];
    ldmatrix_x4(q, &shared.q[warp * 16 + lane % 16].at[k + lane / 16 * 8]);
#pragma unroll
    for (int j = 0; j < kTile<kDim> / 8; j += 2) {  // two parts of 8 keys
      uint32_t key[4];
      const Row<kDim>& row = shared.keys[stage][j * 8 + lane / 16 * 8 + lane % 8];
      ldmatrix_x4(key, &row.at[k + lane / 8 % 2 * 8]);
      const uint32_t first[2] = {key[0], key[1]}, second[2] = {key[2], key[3]};
      mma_bf16(scores[j], q, first);
      mma_bf16(scores[j + 1], q, second);
    }
  }
}

// out += weights V, where the weights lie as scores do.
template <int kDim>
__device__ void multiply_values(const Shared<kDim>& shared, int stage,
                                const float (&weights)[kTile<kDim> / 8][4],
                                float (&out)[kDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < kTile<kDim> / 8; j += 2) {  // 16 positions
    const uint32_t w[4] = {bf16x2_from_floats(weights[j][0], weights[j][1]),
                           bf16x2_from_floats(weights[j][2], weights[j][3]),
                           bf16x2_from_floats(weights[j + 1][0], weights[j + 1][1]),
                           bf16x2_from_floats(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (int d = 0; d < kDim / 8; d += 2) {
      uint32_t value[4];
      const Row<kDim>& row = shared.values[stage][j * 8 + lane % 16];
      ldmatrix_x4_trans(value, &row.at[d * 8 + lane / 16 * 8]);
      const uint32_t first[2] = {value[0], value[1]}, second[2] = {value[2], value[3]};
      mma_bf16(out[d], w, first);
      mma_bf16(out[d + 1], w, second);
    }
  }
}

// A lane's state of its two rows: the largest score so far and the sum of exponentials. The columns
// of the sum are spread over four lanes until the end.
struct RowState {
  float top[2], sum[2];
};

// Dot products to scores of the tile that begins at `begin`; none where a row does not attend.
template <DType kDType, int kDim>
__device__ void finish_scores(const AttentionArgs& a, const Task& task, const Shared<kDim>& shared,
                              int stage, int begin, float (&scores)[kTile<kDim> / 8][4]) {
  constexpr int kParts = kTile<kDim> / 8;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = warp * 16 + lane / 4;  // of elements 0 and 1; 2 and 3 are 8 further down
  const int first_token = lane % 4 * 2;        // of elements 0 and 2
  auto each = [&](auto body) {
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[j][i] = body(scores[j][i], first_row + i / 2 * 8, j * 8 + first_token + i % 2);
    }
  };
  if constexpr (kDType != DType::bf16)
    each([&](float x, int, int token) { return x * shared.keys[stage][token].scale; });
  if (a.soft_cap > 0 || a.alibi_slopes != nullptr) {
    each([&](float x, int row, int token) {
      return finish_score(a, x, task.slope, begin + token, task.position + row) * kLog2E;
    });
  } else {
    const float scale = a.scale * kLog2E;
    each([&](float x, int, int) { return x * scale; });
  }
  if (begin >= task.every && begin + kTile<kDim> - 1 <= task.position) return;
  const int first[2] = {first_key(a, task.position + first_row),
                        first_key(a, task.position + first_row + 8)};
  each([&](float x, int row, int token) {
    const int key = begin + token;
    const int from = row == first_row ? first[0] : first[1];
    return key >= from && key <= task.position + row && key < task.end ? x : kMinusInfinity;
  });
}

// Scores to softmax weights with respect to the rows' new largest scores; `out` follows.
template <DType kDType, int kDim>
__device__ void soften(const Shared<kDim>& shared, int stage, float (&scores)[kTile<kDim> / 8][4],
                       RowState& state, float (&out)[kDim / 8][4]) {
  constexpr int kParts = kTile<kDim> / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = state.top[half];
#pragma unroll
    for (int j = 0; j < kParts; ++j)
      top = fmaxf(top, fmaxf(scores[j][half * 2], scores[j][half * 2 + 1]));
    top = warp_reduce<4>(top, Larger{});
    const float base = top > kMinusInfinity ? top : 0;  // nothing yet: exponentials are zero
    const float keep = exp2_approx(state.top[half] - base);
    state.top[half] = top;
    state.sum[half] *= keep;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      for (int i = 0; i < 2; ++i) out[d][half * 2 + i] *= keep;
    }
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[j][half * 2 + i];
        score = exp2_approx(score - base);
        state.sum[half] += score;
        if constexpr (kDType != DType::bf16)
          score *= shared.values[stage][j * 8 + lane % 4 * 2 + i].scale;
      }
    }
  }
}

template <int kDim>
__device__ void store_out(const AttentionArgs& a, const Task& task, const RowState& state,
                          const float (&out)[kDim / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = warp_reduce<4>(state.sum[half], Plus{});
    const int row = warp * 16 + lane / 4 + half * 8;
    if (row >= task.rows) continue;
    float* to = a.out + (task.row + row) * a.out_stride + task.head * a.value_dim;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      const int col = d * 8 + lane % 4 * 2;
      if (col >= a.value_dim) continue;
      to[col] = out[d][half * 2] / sum;
      to[col + 1] = out[d][half * 2 + 1] / sum;
    }
  }
}

// x: kRows rows of a chunk; y: heads; z: chunks.
template <DType kDType, int kDim>
__global__ void __launch_bounds__(kThreads)
    prefill_kernel(AttentionArgs a, const PrefillChunk* chunks) {
  const PrefillChunk chunk = chunks[blockIdx.z];
  const int row = (static_cast<int>(gridDim.x - 1 - blockIdx.x)) * kRows;  // the longest first
  if (row >= chunk.rows) return;
  Task task;
  task.table = a.tables + chunk.sequence * a.table_stride;
  task.head = static_cast<int>(blockIdx.y);
  task.kv_head = task.head / a.group;
  task.row = chunk.first_row + row;
  task.rows = chunk.rows - row < kRows ? chunk.rows - row : kRows;
  task.position = chunk.first_position + row;
  task.first = first_key(a, task.position);
  task.end = task.position + task.rows;
  task.every = first_key(a, task.end - 1);
  task.slope = a.alibi_slopes == nullptr ? 0 : a.alibi_slopes[task.head];
  auto& shared = shared_memory<Shared<kDim>>();
  const int begin = task.first / kTile<kDim> * kTile<kDim>;
  load_tile<kDType>(a, task, begin, 0, shared);
  copies_begun();
  load_queries(a, task, shared);

  // A sink is a score that came first. All four lanes of a row add up in the end; one has it.
  const bool sink = a.sinks != nullptr;
  const float top = sink ? a.sinks[task.head] * kLog2E : kMinusInfinity;
  const float sum = sink && threadIdx.x % 4 == 0 ? 1 : 0;
  RowState state{{top, top}, {sum, sum}};
  float out[kDim / 8][4] = {};
  int stage = 0;
  for (int tile = begin; tile < task.end; tile += kTile<kDim>) {
    const int next = tile + kTile<kDim>;
    if (next < task.end) load_tile<kDType>(a, task, next, 1 - stage, shared);
    copies_begun();
    wait_for_copies<1>();
    __syncthreads();
    float scores[kTile<kDim> / 8][4] = {};
    multiply_keys(shared, stage, scores);
    finish_scores<kDType>(a, task, shared, stage, tile, scores);
    soften<kDType>(shared, stage, scores, state, out);
    multiply_values(shared, stage, scores, out);
    __syncthreads();
    stage = 1 - stage;
  }
  store_out<kDim>(a, task, state, out);
}

template <DType kDType, int kDim>
void launch_prefill(const AttentionArgs& args, const PrefillChunk* chunks, int64_t count,
                    int64_t longest, Stream stream) {
  const Launch at{{static_cast<uint32_t>(ceil_div(longest, kRows)),
                   static_cast<uint32_t>(args.heads), static_cast<uint32_t>(count)},
                  {kThreads},
                  sizeof(Shared<kDim>)};
  launch(prefill_kernel<kDType, kDim>, at, stream, args, chunks);
}

}  // namespace

void attention_prefill(Tensor q, const KvCache& cache, const BlockTables& tables,
                       const PrefillChunk* chunks, int64_t count, int64_t longest,
                       const AttentionSettings& settings, Tensor out, Stream stream) {
  const AttentionArgs args = attention_args(q, cache, tables, settings, out);
  check(!is_wide(cache) && args.chosen == nullptr, "heads that attention_wide need not take");
  if (count == 0 || longest == 0) return;
  with_dtype<DType::bf16, DType::f8_e4m3, DType::f8_e5m2>(cache.dtype, [&](auto dtype) {
    auto with = [&](auto dim) {
      launch_prefill<dtype(), dim()>(args, chunks, count, longest, stream);
    };
    const int dim = args.key_dim > args.value_dim ? args.key_dim : args.value_dim;
    dim <= 64 ? with(Constant<64>{}) : dim <= 128 ? with(Constant<128>{}) : with(Constant<256>{});
  });
}

}  // namespace sluice::cuda
