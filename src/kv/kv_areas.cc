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
    : runs_(2 * static_cast<uint64_t>(areas)),
      run_bytes_(static_cast<uint64_t>(kv_block_bytes(shape))),
      pitch_(static_cast<uint64_t>(shape.blocks) * run_bytes_),
      memory_(memory),
      areas_(static_cast<size_t>(areas), shape) {
  for (KvCache& area : areas_) {
    area.keys = memory;
    area.values = memory + pitch_;
    memory += 2 * pitch_;
  }
}

void KvAreas::gather(DeviceStream& stream, int32_t block, std::byte* to) const {
  stream.copy_rows(to, run_bytes_, at(block), pitch_, run_bytes_, runs_);
}

void KvAreas::scatter(DeviceStream& stream, const std::byte* from, int32_t block) const {
  stream.copy_rows(at(block), pitch_, from, run_bytes_, run_bytes_, runs_);
}

void KvAreas::copy(DeviceStream& stream, int32_t from, int32_t to) const {
  stream.copy_rows(at(to), pitch_, at(from), pitch_, run_bytes_, runs_);
}

}  // namespace sluice
