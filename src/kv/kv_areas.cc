#include "src/kv/kv_areas.h"

#include "io/reader.h"
#include "src/base/units.h"

namespace sluice {

uint64_t kv_block_bytes(const KvCache& shape, int64_t areas) {
  return static_cast<uint64_t>(areas * kv_block_bytes(shape));
}

uint64_t kv_slot_bytes(const KvCache& shape, int64_t areas) {
  return round_up(kv_block_bytes(shape, areas), io::kDirectAlignment);
}

KvAreas::KvAreas(const KvCache& shape, int64_t areas, std::byte* memory)
    : block_bytes_(kv_block_bytes(shape, areas)),
      memory_(memory),
      areas_(static_cast<size_t>(areas), shape) {
  for (KvCache& area : areas_) {
    area.keys = memory;
    area.values = shape.latent ? memory : memory + kv_key_bytes(shape);
    area.block_stride = static_cast<int64_t>(block_bytes_);
    memory += kv_block_bytes(shape);
  }
}

void KvAreas::gather(DeviceStream& stream, int32_t block, std::byte* to) const {
  stream.copy(to, at(block), block_bytes_);
}

void KvAreas::scatter(DeviceStream& stream, const std::byte* from, int32_t block) const {
  stream.copy(at(block), from, block_bytes_);
}

void KvAreas::copy(DeviceStream& stream, int32_t from, int32_t to) const {
  stream.copy(at(to), at(from), block_bytes_);
}

}  // namespace sluice
