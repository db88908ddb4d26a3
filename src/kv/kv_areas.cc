#include "src/kv/kv_areas.h"

#include "src/base/error.h"

namespace sluice {

KvAreas::KvAreas(const KvLayout& layout, int64_t pages, std::byte* memory,
                 std::span<const KvScales> scales)
    : page_bytes_(layout.page_bytes()), memory_(memory) {
  check(scales.empty() || scales.size() == layout.places.size(), "scales of each layer, or none");
  for (size_t l = 0; l < layout.places.size(); ++l) {
    std::vector<LayerKv>& layer = layers_.emplace_back();
    for (size_t s = 0; s < layout.places[l].size(); ++s) {
      const KvPlace& place = layout.places[l][s];
      LayerKv& kv =
          layer.emplace_back(LayerKv{place.group, layout.caches[l][s], layout.states[l][s]});
      kv.state.pages = memory;
      kv.state.blocks = pages;
      if (layout.groups[place.group].kind == KvKind::state) continue;
      kv.cache.blocks = pages;
      kv.cache.block_stride = static_cast<int64_t>(page_bytes_);
      kv.cache.keys = memory + static_cast<uint64_t>(place.area) * layout.area_bytes;
      kv.cache.values = kv.cache.latent ? kv.cache.keys : kv.cache.keys + kv_key_bytes(kv.cache);
      if (scales.empty()) continue;
      kv.cache.key_scale = scales[l].key;
      kv.cache.value_scale = kv.cache.latent ? scales[l].key : scales[l].value;
    }
  }
}

void KvAreas::gather(DeviceStream& stream, int32_t page, std::byte* to) const {
  stream.copy(to, at(page), page_bytes_);
}

void KvAreas::scatter(DeviceStream& stream, const std::byte* from, int32_t page) const {
  stream.copy(at(page), from, page_bytes_);
}

void KvAreas::copy(DeviceStream& stream, int32_t from, int32_t to) const {
  stream.copy(at(to), at(from), page_bytes_);
}

}  // namespace sluice
