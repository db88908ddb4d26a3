// Layers of a model that keep the same tokens in the KV cache: all, or those in a sliding window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Each group has at most `areas` layers, so that a block holds the same bytes whichever group it
// belongs to: one pool serves them all (as vLLM's hybrid KV cache manager).
struct LayerGroups {
  std::vector<int64_t> windows;  // of each group: tokens that its layers attend to; 0: all
  struct Layer {
    size_t group = 0;
    int64_t area = 0;  // its place in the group's blocks
  };
  std::vector<Layer> layers;
  int64_t areas = 0;
};

// `windows`: of each layer. The size of the groups is the one that leaves the fewest areas unused.
LayerGroups group_layers(std::span<const int64_t> windows);

}  // namespace sluice
