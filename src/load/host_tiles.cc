#include "src/load/host_tiles.h"

#include <algorithm>
#include <exception>

#include "quant/encode.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace sluice {

HostTiles::HostTiles(const ReadPlan& plan, const Backend& backend, Ledger& ledger)
    : plan_(plan), backend_(backend), copies_(backend.device().stream()) {
  Device& device = backend.device();
  for (const TiledParam& t : plan.host_sweep) {
    const ParamPlan& p = plan.params[t.param];
    sources_[p.param] = {.tiled = &t, .host_rows = p.host_rows};
  }
  StreamMemory needs = stream_memory(plan, device.has_own_memory());
  memory_ = device.memory(ledger, Use::staging, "host tiles", needs.host_tiles, Buffer::Touch::now);
  unpacked_ = memory_.data() + slots_.size() * plan.host_tile_bytes;
  vector_memory_ =
      Buffer(ledger, Use::staging, "biases for the CPU", needs.host_vectors, Buffer::Touch::now);
  copy_vectors();
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

void HostTiles::copy_vectors() {
  std::byte* at = vector_memory_.data();
  for (uint32_t i : host_vectors(plan_)) {
    const ParamPlan& p = plan_.params[i];
    copies_->copy(at, p.param->value.data, p.bytes);
    vectors_.push_back({float_data(p.param), p.param->cols, reinterpret_cast<const float*>(at)});
    at += p.storage;
  }
  copies_->synchronize();
  std::ranges::sort(vectors_, {}, &Vector::on_device);
}

const float* HostTiles::host_vector(const float* on_device) const {
  const auto after = std::ranges::upper_bound(vectors_, on_device, {}, &Vector::on_device);
  if (after == vectors_.begin()) return nullptr;
  const Vector& vector = *(after - 1);
  const int64_t at = on_device - vector.on_device;
  return at < vector.size ? vector.copy + at : nullptr;
}

int64_t HostTiles::host_rows(const Param& param) const {
  const auto source = sources_.find(&param);
  return source == sources_.end() ? 0 : source->second.host_rows;
}

void HostTiles::expect(const Param& param, bool is_wanted) {
  if (const auto source = sources_.find(&param); source != sources_.end())
    source->second.is_wanted = is_wanted;
}

// Packed or not, as it crosses the link.
WeightTile HostTiles::view(uint32_t tile, std::byte* memory) const {
  const TiledParam& t = plan_.param_of_host_tile(tile);
  const ParamPlan& p = plan_.params[t.param];
  int64_t first = (tile - t.first_tile) * t.tile_rows;
  int64_t rows = std::min(t.tile_rows, p.param->rows - first);
  Weight weight = host_tile_view(p, t.tile_rows, memory);
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

// The tile that compute wants after one: those of experts without rows are left out. None where the
// next parameters are all such, or it is the same tile.
std::optional<uint32_t> HostTiles::next_tile(uint32_t tile) const {
  constexpr int kMostLeftOut = 64;  // looking for it is not to take longer than copying
  const uint32_t all = plan_.host_sweep_tiles();
  uint32_t next = (tile + 1) % all;
  for (int i = 0; i < kMostLeftOut && next != tile; ++i) {
    const TiledParam& t = plan_.param_of_host_tile(next);
    if (sources_.at(plan_.params[t.param].param).is_wanted) return next;
    next = (t.first_tile + t.tiles) % all;
  }
  return std::nullopt;
}

WeightTile HostTiles::tile(const Param& param, int64_t row, DeviceStream& stream) {
  const TiledParam& t = *sources_.at(&param).tiled;
  uint32_t wanted = t.first_tile + static_cast<uint32_t>(row / t.tile_rows);
  stream.record(*slots_[current_].used);
  size_t other = (current_ + 1) % slots_.size();
  if (slots_[current_].tile != wanted) {
    if (slots_[other].tile != wanted) fetch(slots_[other], wanted);
    std::swap(current_, other);
  }
  stream.wait(*slots_[current_].arrived);
  const std::optional<uint32_t> next = next_tile(wanted);
  if (next && slots_[other].tile != next) fetch(slots_[other], *next);
  const WeightTile here = view(wanted, slots_[current_].memory);
  const ParamPlan& p = plan_.params[t.param];
  if (!p.is_unpacked()) return here;
  Weight unpacked = tile_view(p, t.tile_rows, unpacked_);
  unpacked.rows = here.weight.rows;
  backend_.unpack(here.weight, unpacked, stream);
  return {unpacked, here.first_row};
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
