// One layer's paged KV cache, and where things lie in a block of it. Storage, plan, copies and
// every backend take the arithmetic from here.
//
// Keys and values are apart. A block of either is one contiguous run of kv_block_bytes:
//   [kv_heads][block_size][head_dim]  elements of `dtype`
//   [kv_heads][block_size]            float32 scales, where kv_stores_scales; in whole 8 bytes
// An FP8 element means its code times a scale: the checkpoint's, one for all keys and one for all
// values of a layer, or else one for each token and head, chosen from that token and head alone
// (kv_token_scale). So what is stored for a token depends on nothing that is computed beside it.
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
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  DType dtype = DType::bf16;  // bf16, f32, f8_e4m3, f8_e5m2
  int64_t blocks = 0;
  int64_t block_size = 16;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // Of an FP8 cache whose checkpoint has scales; both 0: each block has its own.
  float key_scale = 0;
  float value_scale = 0;
};

constexpr bool is_float8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
constexpr bool kv_stores_scales(const KvCache& c) { return is_float8(c.dtype) && c.key_scale == 0; }

// Bytes from the begin of a block, of keys or of values.
inline int64_t kv_element_offset(const KvCache& c, int64_t kv_head, int64_t token) {
  return (kv_head * c.block_size + token) * c.head_dim * dtype_bytes(c.dtype);
}
inline int64_t kv_scale_offset(const KvCache& c, int64_t kv_head, int64_t token) {
  const int64_t elements = c.kv_heads * c.block_size * c.head_dim * dtype_bytes(c.dtype);
  return ceil_div(elements, 4) * 4 + (kv_head * c.block_size + token) * 4;
}
// Bytes of one block of keys, or of values.
inline int64_t kv_block_bytes(const KvCache& c) {
  return kv_stores_scales(c) ? ceil_div(kv_scale_offset(c, c.kv_heads, 0), 8) * 8
                             : kv_element_offset(c, c.kv_heads, 0);
}

}  // namespace sluice
