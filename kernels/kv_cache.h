// One layer's paged KV cache, and where things lie in a block of it. Storage, plan, copies and
// every backend take the arithmetic from here.
//
// A block has a run of keys and a run of values, apart. A run is contiguous:
//   [kv_heads][block_size][dim]  elements of `dtype`; dim: key_dim or value_dim
//   [kv_heads][block_size]       float32 scales, where kv_stores_scales; in whole 8 bytes
// In a latent cache (MLA, arXiv:2405.04434) a token's value is the beginning of its key, which is
// stored once; blocks have no runs of values. The value of an FP8 element is its code times a
// scale: the checkpoint's, one for all keys and one for all values of a layer, or else one for each
// token and head, chosen from that token and head alone (kv_token_scale). So the stored bits of a
// token do not depend on the batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/dtype.h"
#include "src/base/units.h"

namespace sluice {

// A layer's scales, where its checkpoint has them.
struct KvScales {
  float key = 0;
  float value = 0;
};

struct KvCache {
  std::byte* keys = nullptr;    // of block 0
  std::byte* values = nullptr;  // of block 0; of a latent cache `keys`
  int64_t block_stride = 0;     // bytes from a block's keys to the next block's, and of values
  DType dtype = DType::bf16;    // bf16, f32, f8_e4m3, f8_e5m2
  int64_t blocks = 0;
  int64_t block_size = 16;  // tokens, or entries of several
  int64_t kv_heads = 0;
  int64_t key_dim = 0;    // elements of a head
  int64_t value_dim = 0;  // of a latent cache at most key_dim
  bool latent = false;
  int64_t tokens = 1;  // that an entry stands for; then block_size counts entries
  // Scales of an FP8 cache from the checkpoint; both 0: each token and head has its own.
  float key_scale = 0;
  float value_scale = 0;
};

constexpr bool is_float8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
constexpr bool kv_stores_scales(const KvCache& c) { return is_float8(c.dtype) && c.key_scale == 0; }

// Elements from a token's values to the next token's.
constexpr int64_t kv_value_row(const KvCache& c) { return c.latent ? c.key_dim : c.value_dim; }

// Entries that a token at `position` sees: those of whole windows up to it.
[[gnu::always_inline]] constexpr int64_t kv_entries(int64_t tokens, int64_t position) {
  return (position + 1) / tokens;
}

// Bytes from the begin of a run whose rows have `dim` elements: key_dim, or kv_value_row.
inline int64_t kv_element_offset(const KvCache& c, int64_t dim, int64_t kv_head, int64_t token) {
  return (kv_head * c.block_size + token) * dim * dtype_bytes(c.dtype);
}
inline int64_t kv_scale_offset(const KvCache& c, int64_t dim, int64_t kv_head, int64_t token) {
  const int64_t elements = c.kv_heads * c.block_size * dim * dtype_bytes(c.dtype);
  return ceil_div(elements, 4) * 4 + (kv_head * c.block_size + token) * 4;
}
inline int64_t kv_run_bytes(const KvCache& c, int64_t dim) {
  return kv_stores_scales(c) ? ceil_div(kv_scale_offset(c, dim, c.kv_heads, 0), 8) * 8
                             : kv_element_offset(c, dim, c.kv_heads, 0);
}
inline int64_t kv_key_bytes(const KvCache& c) { return kv_run_bytes(c, c.key_dim); }
inline int64_t kv_value_bytes(const KvCache& c) {
  return c.latent ? 0 : kv_run_bytes(c, c.value_dim);
}
// Bytes of a layer's keys and values in one block.
inline int64_t kv_block_bytes(const KvCache& c) { return kv_key_bytes(c) + kv_value_bytes(c); }

// The first position that a token at `position` attends to; the last one is its own. `window`: the
// number of last tokens it attends to, itself included (0: all). `chunk`: it attends to none before
// the last multiple of it (0: to all), as in Llama 4's chunked attention. Always inline: no
// instruction set's code may be linked for another.
[[gnu::always_inline]] constexpr int64_t first_attended(int64_t window, int64_t chunk,
                                                        int64_t position) {
  const int64_t by_window = window > 0 && position >= window ? position + 1 - window : 0;
  const int64_t by_chunk = chunk > 0 ? position / chunk * chunk : 0;
  return by_window > by_chunk ? by_window : by_chunk;
}

}  // namespace sluice
