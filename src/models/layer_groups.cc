#include "src/models/layer_groups.h"

#include <algorithm>
#include <map>

#include "src/base/units.h"

namespace sluice {
namespace {

using Kinds = std::map<int64_t, int64_t>;  // window → layers

// The largest of the best: few groups are few tables.
int64_t best_size(const Kinds& kinds) {
  int64_t largest = std::ranges::min_element(kinds, {}, &Kinds::value_type::second)->second;
  int64_t best = 1, least = INT64_MAX;
  for (int64_t size = largest; size > 0; --size) {
    int64_t areas = 0;
    for (auto [window, layers] : kinds) areas += ceil_div(layers, size) * size;
    if (areas >= least) continue;
    least = areas;
    best = size;
  }
  return best;
}

}  // namespace

LayerGroups group_layers(std::span<const int64_t> windows) {
  Kinds kinds;
  for (int64_t window : windows) ++kinds[window];
  LayerGroups groups;
  groups.areas = best_size(kinds);
  struct Open {
    size_t group = 0;
    int64_t layers = 0;
  };
  std::map<int64_t, Open> open;  // the group of each kind that is being filled
  for (int64_t window : windows) {
    auto [at, fresh] = open.try_emplace(window);
    if (fresh || at->second.layers == groups.areas) {
      at->second = {groups.windows.size(), 0};
      groups.windows.push_back(window);
    }
    groups.layers.push_back({at->second.group, at->second.layers++});
  }
  return groups;
}

}  // namespace sluice
