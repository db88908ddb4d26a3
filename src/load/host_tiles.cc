#include "src/load/host_tiles.h"

#include <algorithm>
#include <exception>

#include "quant/encode.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace sluice {

HostTiles::HostTiles(const ReadPlan& plan, Device& device, Ledger& ledger)
    : plan_(plan), copies_(device.stream()) {
  for (const TiledParam& t : plan.host_sweep) tiled_[plan.params[t.param].param] = &t;
  StreamMemory needs = stream_memory(plan, device.has_own_memory());
  memory_ = device.memory(ledger, Use::staging, "host tiles", needs.host_tiles, Buffer::Touch::now);
  row_ = Buffer(ledger, Use::staging, "embedding row", needs.host_row, Buffer::Touch::now);
  for (size_t s = 0; s < slots_.size(); ++s) {
    slots_[s].memory = memory_.data() + s * plan.host_tile_bytes;
    slots_[s].arrived = device.event();
    slots_[s].used = device.event();
  }
  for (const ParamPlan& p : plan.params) {
    if (p.tier == Tier::host) p.param->stream = this;
  }
}

HostTiles::~HostTiles() {
  for (const ParamPlan& p : plan_.params) {
    if (p.param->stream == this) p.param->stream = nullptr;
  }
  try {
    copies_->synchronize();  // they read memory that may go after this
  } catch (const std::exception& e) {
    log::warning("{}", e.what());
  }
}

WeightTile HostTiles::view(uint32_t tile, std::byte* memory) const {
  const TiledParam& t = plan_.param_of_host_tile(tile);
  const ParamPlan& p = plan_.params[t.param];
  int64_t first = (tile - t.first_tile) * t.tile_rows;
  int64_t rows = std::min(t.tile_rows, p.param->rows - first);
  Weight weight = tile_view(p, t.tile_rows, memory);
  weight.rows = rows;
  return {weight, first};
}

// Copies what the device has let go of `slot` for.
void HostTiles::fetch(Slot& slot, uint32_t tile) {
  const Weight& from = plan_.params[plan_.param_of_host_tile(tile).param].param->value;
  WeightTile to = view(tile, slot.memory);
  copies_->wait(*slot.used);
  auto copy = [&](std::byte* at, const std::byte* begin, uint64_t bytes) {
    copies_->copy(at, begin, bytes);
    bytes_copied_ += bytes;
  };
  for (Plane plane : kPlanes) {
    if (from.plane(plane) == nullptr) continue;
    copy(to.weight.plane(plane),
         from.plane(plane) + plane_offset(from.format, plane, to.first_row, from.cols),
         plane_bytes(from.format, plane, to.weight.rows, from.cols));
  }
  copies_->record(*slot.arrived);
  slot.tile = tile;
}

WeightTile HostTiles::tile(const Param& param, int64_t row, DeviceStream& stream) {
  const TiledParam& t = *tiled_.at(&param);
  uint32_t wanted = t.first_tile + static_cast<uint32_t>(row / t.tile_rows);
  stream.record(*slots_[current_].used);
  size_t other = (current_ + 1) % slots_.size();
  if (slots_[current_].tile != wanted) {
    if (slots_[other].tile != wanted) fetch(slots_[other], wanted);
    std::swap(current_, other);
  }
  stream.wait(*slots_[current_].arrived);
  uint32_t next = (wanted + 1) % plan_.host_sweep_tiles();
  if (next != wanted && slots_[other].tile != next) fetch(slots_[other], next);
  return view(wanted, slots_[current_].memory);
}

void HostTiles::embed(const Param& table, std::span<const int32_t> ids, Tensor out,
                      DeviceStream& stream) {
  auto* row = reinterpret_cast<float*>(row_.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    decode_row(table.value, ids[i], row);
    // Memory that is not pinned: it has been read when this returns.
    stream.copy(out.rows_from(static_cast<int64_t>(i), 1).data, row_.data(),
                static_cast<uint64_t>(out.cols) * sizeof(float));
  }
}

}  // namespace sluice
