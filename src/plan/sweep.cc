#include "src/plan/sweep.h"

#include <algorithm>
#include <numeric>

#include "io/reader.h"
#include "src/base/units.h"
#include "src/memory/buffer.h"

namespace sluice {
namespace {

enum class Fate : uint8_t { stays, may_go, goes };

Fate fate(const ParamPlan& p, const std::vector<PlaceRule>& rules) {
  if (p.param->pieces.front().vector) return Fate::stays;  // small, and met by every token
  if (auto disk = wants_disk(rules, p.param->path)) return *disk ? Fate::goes : Fate::stays;
  bool only_looked_up =
      p.param->role == ParamRole::embedding && p.format.layout == WeightLayout::rows;
  return only_looked_up ? Fate::goes : Fate::may_go;
}

uint64_t storage_of(const ParamPlan& p) { return p.bytes + p.scale_bytes + 2 * kCellBytes; }

}  // namespace

std::vector<bool> choose_streamed(const ReadPlan& all, uint64_t room,
                                  const std::vector<PlaceRule>& rules) {
  std::vector<bool> streamed(all.params.size());
  std::vector<size_t> movable;
  uint64_t total = 0;
  for (size_t i = 0; i < all.params.size(); ++i) {
    Fate f = fate(all.params[i], rules);
    streamed[i] = f != Fate::stays;
    if (f != Fate::may_go) continue;
    movable.push_back(i);
    total += storage_of(all.params[i]);
  }
  uint64_t taken = 0;
  uint64_t seen = 0;
  double share =
      std::min(1.0, static_cast<double>(room) / static_cast<double>(std::max<uint64_t>(total, 1)));
  auto keep = [&](size_t i) {
    streamed[i] = false;
    taken += storage_of(all.params[i]);
  };
  for (size_t i : movable) {
    uint64_t bytes = storage_of(all.params[i]);
    seen += bytes;
    if (static_cast<double>(taken + bytes) <= share * static_cast<double>(seen)) keep(i);
  }
  // What the even share left over, largest first.
  std::ranges::stable_sort(movable, std::greater{},
                           [&](size_t i) { return storage_of(all.params[i]); });
  for (size_t i : movable) {
    if (streamed[i] && taken + storage_of(all.params[i]) <= room) keep(i);
  }
  return streamed;
}

LookupShape lookup_shape(const ReadPlan& plan) {
  LookupShape shape;
  for (const TensorPlan& t : plan.tensors) {
    const ParamPlan& p = plan.params[t.param];
    if (!p.streamed || p.param->role != ParamRole::embedding) continue;
    RowsInFile rows = rows_in_file(plan, t);
    uint64_t group = rows.row_bytes * static_cast<uint64_t>(std::min(rows.group, rows.rows));
    shape.slot_bytes =
        std::max(shape.slot_bytes, round_up(group, io::kDirectAlignment) + io::kDirectAlignment);
    shape.tile_bytes = std::max(shape.tile_bytes, tile_layout(p, rows.group).bytes);
  }
  return shape;
}

uint64_t tile_buffers(const ReadPlan& plan) {
  return std::min<uint64_t>(plan.ring_bytes / plan.slot_bytes, plan.sweep.size());
}

StreamMemory stream_memory(const ReadPlan& plan) {
  StreamMemory memory;
  LookupShape lookup = lookup_shape(plan);
  memory.lookup = Buffer::charged_bytes(lookup.slot_bytes * kLookupSlots + lookup.tile_bytes);
  memory.sweep = Buffer::charged_bytes((plan.slot_bytes + plan.tile_bytes) * tile_buffers(plan));
  return memory;
}

}  // namespace sluice
