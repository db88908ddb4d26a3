// The sharing of the KV cache's pages by layers.
//
// All pages have equal bytes, so that one pool serves all layers (as vLLM's hybrid KV cache
// manager). A page is cut into areas of equal bytes, one a layer. Layers of equal specs form
// groups, with at most as many layers as a page has areas; a page is a block of one group. A group
// that keeps less of a token has more tokens in a block, a multiple of the format's, so that its
// block fills the areas. States lie one after another in pages of their own groups, row by row, so
// that a large one has rows in several pages (kernels/state_cache.h). If layers have nothing but
// states, a page has all of a sequence's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_spec.h"

namespace sluice {

// The specs of each layer.
using KvSpecs = std::vector<std::vector<KvSpec>>;

struct KvPlace {
  size_t group = 0;
  int64_t area = 0;  // not of a state, which has its place in its cache
};

struct KvLayout {
  std::vector<KvGroup> groups;               // states last
  std::vector<std::vector<KvPlace>> places;  // as the specs
  // Caches and states without memory. An entry of the other kind is a default.
  std::vector<std::vector<KvCache>> caches;
  std::vector<std::vector<StateCache>> states;
  int64_t areas = 0;  // of a page
  uint64_t area_bytes = 0;

  uint64_t page_bytes() const { return static_cast<uint64_t>(areas) * area_bytes; }
  uint64_t slot_bytes() const;  // of a page in another tier: whole blocks of direct I/O
};

// Error(refused) for a layer that shares what no earlier layer has.
KvLayout kv_layout(const KvSpecs& specs, const KvFormat& format);
// The layout of stage `own` of a pipeline, each of which has some of the layers, one after another.
// All stages have equal groups, so that one list of blocks serves all, and pages of their own
// layers. A layer shares what one of its stage has; specs count from the stage's first.
KvLayout kv_layout(std::span<const KvSpecs> stages, size_t own, const KvFormat& format);

// Blocks that `sequences` of together `tokens` tokens have at most in a group, if a step gives each
// `rows` of them.
int64_t most_blocks(const KvGroup& group, int64_t tokens, int64_t rows, int64_t sequences = 1);

}  // namespace sluice
