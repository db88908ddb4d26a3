// Shared by attention and the choice of positions: jobs over a cache, and the scratch of one.
#pragma once

#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/units.h"
#include "kernels/kernels.h"
#include "src/base/units.h"

namespace sluice {

inline int64_t padded_dim(int64_t dim) { return ceil_div(dim, 16) * 16; }

// Floats of what Ops::attend and Ops::index_scores work in: queries, scores, weights, cells.
inline int64_t attend_floats(int64_t key_dim, int64_t value_dim) {
  return cpu::kQueries * padded_dim(key_dim) +
         cpu::kQueries * (cpu::kScoreStride + cpu::kPartition) +
         cpu::kAttentionRun * padded_dim(std::max(key_dim, value_dim));
}

// Queries and weights are rounded to bf16 as linear layers' inputs are; bf16 has all values of FP8.
inline cpu::Units attention_units(const cpu::Ops& ops, Compute compute, const KvCache& cache,
                                  cpu::Units rounded) {
  const DType dtype = is_float8(cache.dtype) ? DType::bf16 : cache.dtype;
  return input_units(ops, compute, dtype) == ops.bf16_units ? rounded : cpu::Units::f32;
}

// A KV head's keys and values.
inline void set_cache(const KvCache& cache, int64_t kv_head, cpu::AttentionJob& job) {
  const int64_t value_row = kv_value_row(cache);
  job.keys = cache.keys + kv_element_offset(cache, cache.key_dim, kv_head, 0);
  job.values = cache.values + kv_element_offset(cache, value_row, kv_head, 0);
  job.block_stride = cache.block_stride;
  job.block_size = cache.block_size;
  job.key_dim = cache.key_dim;
  job.padded_keys = padded_dim(cache.key_dim);
  job.value_dim = cache.value_dim;
  job.padded_values = padded_dim(cache.value_dim);
  job.value_row = value_row;
  job.dtype = cache.dtype;
  if (kv_stores_scales(cache)) {
    job.key_scales = cache.keys + kv_scale_offset(cache, cache.key_dim, kv_head, 0);
    job.value_scales = cache.values + kv_scale_offset(cache, value_row, kv_head, 0);
  } else if (is_float8(cache.dtype)) {
    job.key_scale = cache.key_scale;
    job.value_scale = cache.value_scale;
  }
}

}  // namespace sluice
