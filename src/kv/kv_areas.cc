#include "src/kv/kv_areas.h"

#include "io/reader.h"
#include "src/base/units.h"

namespace sluice {

uint64_t kv_block_bytes(const KvCache& shape, int64_t areas) {
  return 2 * static_cast<uint64_t>(areas * kv_block_bytes(shape));
}

uint64_t kv_slot_bytes(const KvCache& shape, int64_t areas) {
  return round_up(kv_block_bytes(shape, areas), io::kDirectAlignment);
}

KvAreas::KvAreas(const KvCache& shape, int64_t areas, std::byte* memory)
    : run_bytes_(static_cast<uint64_t>(kv_block_bytes(shape))),
      areas_(static_cast<size_t>(areas), shape) {
  uint64_t side = static_cast<uint64_t>(shape.blocks) * run_bytes_;
  for (KvCache& area : areas_) {
    area.keys = memory;
    area.values = memory + side;
    memory += 2 * side;
  }
}

void KvAreas::gather(DeviceStream& stream, int32_t block, std::byte* to) const {
  for (const KvCache& area : areas_) {
    for (const std::byte* side : {area.keys, area.values}) {
      stream.copy(to, side + static_cast<size_t>(block) * run_bytes_, run_bytes_);
      to += run_bytes_;
    }
  }
}

void KvAreas::scatter(DeviceStream& stream, const std::byte* from, int32_t block) const {
  for (const KvCache& area : areas_) {
    for (std::byte* side : {area.keys, area.values}) {
      stream.copy(side + static_cast<size_t>(block) * run_bytes_, from, run_bytes_);
      from += run_bytes_;
    }
  }
}

void KvAreas::copy(DeviceStream& stream, int32_t from, int32_t to) const {
  for (const KvCache& area : areas_) {
    for (std::byte* side : {area.keys, area.values}) {
      stream.copy(side + static_cast<size_t>(to) * run_bytes_,
                  side + static_cast<size_t>(from) * run_bytes_, run_bytes_);
    }
  }
}

}  // namespace sluice
