// Declared by a family: what a layer keeps of earlier tokens, and the groups of layers that share
// blocks of the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/kv_cache.h"
#include "kernels/state_cache.h"

namespace sluice {

enum class KvKind : uint8_t {
  tokens,  // a key and a value of each token
  latent,  // a key of each token, whose beginning is its value (MLA)
  state,   // one matrix a head, float32, that each token changes (linear attention, Mamba), or
           // the last inputs of a convolution
};

// One rank's share. A layer may have several specs, such as latent keys and an indexer's, or
// attention and a state.
struct KvSpec {
  KvKind kind = KvKind::tokens;
  int64_t heads = 0;
  int64_t key_dim = 0;    // elements of a head; of a state its rows
  int64_t value_dim = 0;  // of a latent at most key_dim; of a state its columns
  int64_t window = 0;     // as first_attended() has them
  int64_t chunk = 0;
  int64_t tokens = 1;  // of a latent: that a key stands for, all those before it and its own
  // The layer whose keys and values it attends to: an earlier one, whose spec at the same place in
  // the list is equal but for this, and has none.
  std::optional<size_t> shared_with = std::nullopt;
  bool operator==(const KvSpec&) const = default;
};

// The format of keys and values in a cache.
struct KvFormat {
  DType dtype = DType::bf16;
  int64_t block_size = 16;  // tokens; a group's blocks have a multiple of it
  // Scales of an FP8 cache from the checkpoint: any layer's, as blocks have equal bytes.
  KvScales scales = {};
};

// The cache of one layer, without its memory. `spec` is of tokens or latent keys. `block_size`:
// tokens of a block.
inline KvCache kv_cache_of(const KvSpec& spec, const KvFormat& format, int64_t block_size) {
  return {.dtype = format.dtype,
          .block_size = block_size / spec.tokens,
          .kv_heads = spec.heads,
          .key_dim = spec.key_dim,
          .value_dim = spec.value_dim,
          .latent = spec.kind == KvKind::latent,
          .tokens = spec.tokens,
          .key_scale = is_float8(format.dtype) ? format.scales.key : 0,
          .value_scale = is_float8(format.dtype) ? format.scales.value : 0};
}
constexpr int64_t kv_state_bytes(const KvSpec& spec) {
  return spec.heads * spec.key_dim * spec.value_dim * static_cast<int64_t>(sizeof(float));
}

// Layers whose blocks hold the same tokens.
struct KvGroup {
  KvKind kind = KvKind::tokens;  // a latent's blocks are as tokens'
  int64_t block_size = 16;       // tokens; no meaning for a state, which has one block a sequence
  int64_t window = 0;
  int64_t chunk = 0;
  int64_t tokens = 1;  // as of KvSpec
};

// A layer's cache: its group's blocks, and the layer's place in them. A state does not use `cache`:
// its pages are blocks of consecutive groups, from `group` on.
struct LayerKv {
  size_t group = 0;
  KvCache cache = {};
  StateCache state = {};
};

}  // namespace sluice
