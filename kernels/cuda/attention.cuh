// Shared by the kernels of attention: places of keys and values, and scores.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

constexpr float kMinusInfinity = -std::bit_cast<float>(kFloatInfinityBits);
constexpr int kChunk = 8;  // elements that a lane reads at once

// The place of keys and values in device memory.
struct CacheArgs {
  const std::byte* keys;
  const std::byte* values;
  int64_t block_stride;  // bytes
  int block_size, kv_heads, key_dim, value_dim;
  int tokens;                    // of an entry
  int block_shift;               // block_size is a power of two, this one's; or less than 0
  int value_row;                 // elements from a token's value to the next one's
  float key_scale, value_scale;  // of the layer; 0: stored for each token and head
  const int32_t* tables;
  int64_t table_stride;
};

struct AttentionArgs : CacheArgs {
  const float* q;
  float* out;
  int64_t q_stride, out_stride;
  int heads, group;       // query heads, and those of each KV head
  const int32_t* chosen;  // [rows][most]: positions that rows attend to; null: to all
  int most;
  int window, chunk;
  float scale, soft_cap;
  const float* alibi_slopes;
  const float* sinks;
  int first_part = 0;  // of the partitions in which its own lie
  // The other cache that rows attend to, whose partitions lie behind: the tokens of its entries (0:
  // there is none), the most that a row attends to, and the first partition.
  int more_tokens = 0, more_most = 0, more_part = 0;
};

// -1: it is none.
inline int power_of_two(uint32_t x) { return std::has_single_bit(x) ? std::countr_zero(x) : -1; }

inline CacheArgs cache_args(const KvCache& cache, const BlockTables& tables) {
  check_paged_cache(cache);
  return {cache.keys,
          cache.values,
          cache.block_stride,
          static_cast<int>(cache.block_size),
          static_cast<int>(cache.kv_heads),
          static_cast<int>(cache.key_dim),
          static_cast<int>(cache.value_dim),
          static_cast<int>(cache.tokens),
          power_of_two(static_cast<uint32_t>(cache.block_size)),
          static_cast<int>(kv_value_row(cache)),
          cache.key_scale,
          cache.value_scale,
          tables.blocks,
          tables.stride};
}

inline AttentionArgs attention_args(const Tensor& q, const KvCache& cache,
                                    const BlockTables& tables, const AttentionSettings& s,
                                    const Tensor& out) {
  check(q.dtype == DType::f32 && out.dtype == DType::f32, "activations are float32");
  check(q.cols % (cache.kv_heads * cache.key_dim) == 0, "attention: whole groups of query heads");
  const int heads = static_cast<int>(q.cols / cache.key_dim);
  check(q.rows == out.rows && out.cols == heads * cache.value_dim,
        "attention: one output for each query");
  return {cache_args(cache, tables),
          q.row<float>(0),
          out.row<float>(0),
          q.stride,
          out.stride,
          heads,
          heads / static_cast<int>(cache.kv_heads),
          s.chosen.most > 0 ? s.chosen.positions : nullptr,
          static_cast<int>(s.chosen.most),
          static_cast<int>(s.window),
          static_cast<int>(s.chunk),
          s.scale,
          s.soft_cap,
          s.alibi_slopes,
          s.sinks};
}

// First position that a query at `position` attends to.
__device__ inline int first_key(const AttentionArgs& a, int position) {
  const int by_window = a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
  const int by_chunk = a.chunk > 0 ? position / a.chunk * a.chunk : 0;
  return by_window > by_chunk ? by_window : by_chunk;
}

// Place of a token's key or value in one KV head.
struct TokenPlace {
  int64_t block;  // bytes from the cache's start
  int token;      // within the block
};
__device__ inline TokenPlace token_place(const CacheArgs& a, const int32_t* table, int kv_head,
                                         int position) {
  const int block = a.block_shift < 0 ? position / a.block_size : position >> a.block_shift;
  return {table[block] * a.block_stride, (kv_head - block) * a.block_size + position};
}

// kCount neighbouring codes as float32 without their scale.
template <DType kDType, int kCount>
__device__ Vec<float, kCount> load_codes(const std::byte* at) {
  using Code = typename Element<kDType>::Code;
  constexpr int kMost = 16 / static_cast<int>(sizeof(Code)),
                kPart = kCount < kMost ? kCount : kMost;
  const auto* from = reinterpret_cast<const Code*>(at);
  Vec<float, kCount> x;
#pragma unroll
  for (int i = 0; i < kCount; i += kPart) {
    const auto codes = load_as<Vec<Code, kPart>>(from + i);
#pragma unroll
    for (int j = 0; j < kPart; ++j) x.at[i + j] = Element<kDType>::decode(codes.at[j]);
  }
  return x;
}

// kChunk codes of a token, from element d. `row`: elements from one token to the next.
template <DType kDType>
__device__ Vec<float, kChunk> load_chunk(const std::byte* cache, int row, const TokenPlace& at,
                                         int d) {
  using Code = typename Element<kDType>::Code;
  const int64_t element = int64_t{at.token} * row + d;
  return load_codes<kDType, kChunk>(cache + at.block + element * int64_t{sizeof(Code)});
}

// Scale of a token's codes.
template <DType kDType>
__device__ float token_scale(const CacheArgs& a, const std::byte* cache, int row,
                             const TokenPlace& at, float layer_scale) {
  if constexpr (sizeof(typename Element<kDType>::Code) != 1) return 1;
  if (layer_scale > 0) return layer_scale;
  const int64_t elements = int64_t{a.kv_heads} * a.block_size * row;
  return reinterpret_cast<const float*>(cache + at.block + elements)[at.token];
}

__device__ inline float finish_score(const AttentionArgs& a, float dot, float slope, int key,
                                     int query) {
  float score = dot * a.scale;
  if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
  return score + slope * static_cast<float>(key - query);
}

}  // namespace sluice::cuda
