#include "src/plan/sweep.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "io/reader.h"
#include "src/base/units.h"
#include "src/memory/buffer.h"
#include "src/plan/lay_out.h"

namespace sluice {
namespace {

// Returns the tier that the parameter must have; nullopt: any.
std::optional<Tier> required_tier(const ParamPlan& p, const std::vector<PlaceRule>& rules) {
  if (p.param->pieces.front().vector) return Tier::device;  // small, and met by every token
  std::optional<Tier> wanted = wanted_tier(rules, p.param->path);
  // A transposed parameter has no tiles, and cannot be on disk.
  if (!wanted && p.transposed) return Tier::device;
  return wanted;
}

uint64_t storage_of(const ParamPlan& p) { return p.bytes + 2 * kCellBytes; }

// Returns those of `movable` that are worth considering if `need` bytes have to go. The largest are
// left out as long as the others are enough: one that is larger than `need` would be read whole for
// nothing.
std::vector<size_t> candidates(const ReadPlan& all, std::vector<size_t> movable, uint64_t need) {
  uint64_t total = 0;
  for (size_t i : movable) total += storage_of(all.params[i]);
  std::vector<size_t> largest = movable;
  std::ranges::stable_sort(largest, std::greater{},
                           [&](size_t i) { return storage_of(all.params[i]); });
  std::vector<bool> left_out(all.params.size());
  for (size_t i : largest) {
    uint64_t bytes = storage_of(all.params[i]);
    if (bytes <= need || total - bytes < need) break;
    total -= bytes;
    left_out[i] = true;
  }
  std::erase_if(movable, [&](size_t i) { return left_out[i]; });
  return movable;
}

// Exchanges what goes for something smaller that stays, as long as `excess`, what goes beyond need,
// allows it: sizes are few, and what is left of a budget would else be up to the smallest that
// happens to go.
void exchange(const ReadPlan& all, const std::vector<size_t>& movable, uint64_t excess,
              std::vector<bool>& streamed) {
  using BySize = std::map<uint64_t, std::vector<size_t>>;
  BySize goes, stays;
  for (size_t i : movable) (streamed[i] ? goes : stays)[storage_of(all.params[i])].push_back(i);
  auto take = [](BySize& from, BySize::iterator at) {
    size_t taken = at->second.back();
    at->second.pop_back();
    if (at->second.empty()) from.erase(at);
    return taken;
  };
  while (true) {
    uint64_t gain = 0;
    auto from = goes.end(), to = stays.end();
    for (auto larger = goes.begin(); larger != goes.end(); ++larger) {
      auto smaller = stays.lower_bound(larger->first - std::min(larger->first, excess));
      if (smaller == stays.end() || smaller->first + gain >= larger->first) continue;
      gain = larger->first - smaller->first;
      from = larger;
      to = smaller;
    }
    if (gain == 0) return;
    size_t back = take(goes, from), gone = take(stays, to);
    streamed[back] = false;
    streamed[gone] = true;
    goes[storage_of(all.params[gone])].push_back(gone);
    stays[storage_of(all.params[back])].push_back(back);
    excess -= gain;
  }
}

// Keeps the surplus over `need` of the `gone` bytes that go: the largest first, and of equal ones
// some all over the sweep, since the disk would wait while neighbours that stay are computed.
// Returns what still goes.
uint64_t bring_back(const ReadPlan& all, const std::vector<size_t>& movable, uint64_t need,
                    uint64_t gone, std::vector<bool>& streamed) {
  std::map<uint64_t, std::vector<size_t>, std::greater<>> goes;  // by size, as a sweep meets them
  for (size_t i : movable)
    if (streamed[i]) goes[storage_of(all.params[i])].push_back(i);
  for (const auto& [bytes, equal] : goes) {
    const size_t fit = (gone - std::min(gone, need)) / bytes;
    const size_t stay = std::min<size_t>(fit, equal.size());
    for (size_t n = 0; n < stay; ++n)
      streamed[equal[(2 * n + 1) * equal.size() / (2 * stay)]] = false;
    gone -= stay * bytes;
  }
  return gone;
}

uint64_t storage_of(const ReadPlan& all, const std::vector<size_t>& params) {
  uint64_t sum = 0;
  for (size_t i : params) sum += storage_of(all.params[i]);
  return sum;
}

// Returns those of `movable` that have to leave a memory with room for `room` bytes.
std::vector<size_t> leaving(const ReadPlan& all, std::vector<size_t> movable, uint64_t room) {
  std::vector<bool> streamed(all.params.size());
  uint64_t total = storage_of(all, movable);
  uint64_t need = total - std::min(total, room);
  movable = candidates(all, std::move(movable), need);
  total = storage_of(all, movable);
  // Evenly over the sweep, which meets a tied head at its end: after each parameter what has gone
  // is its share of what was seen.
  std::ranges::stable_partition(movable,
                                [&](size_t i) { return all.params[i].table != Table::tied; });
  double share = static_cast<double>(need) / static_cast<double>(std::max<uint64_t>(total, 1));
  uint64_t gone = 0;
  uint64_t seen = 0;
  for (size_t i : movable) {
    uint64_t bytes = storage_of(all.params[i]);
    seen += bytes;
    streamed[i] = static_cast<double>(gone) < share * static_cast<double>(seen);
    if (streamed[i]) gone += bytes;
  }
  gone = bring_back(all, movable, need, gone, streamed);
  exchange(all, movable, gone - std::min(gone, need), streamed);
  std::erase_if(movable, [&](size_t i) { return !streamed[i]; });
  std::ranges::sort(movable);  // as a sweep meets them
  return movable;
}

// Does the same, but parameters that only some tokens use leave before any that all use.
std::vector<size_t> leaving_by_use(const ReadPlan& all, const ByUse& movable, uint64_t room) {
  const uint64_t common_bytes = storage_of(all, movable.common);
  std::vector<size_t> gone = leaving(all, movable.routed, room - std::min(room, common_bytes));
  const uint64_t stays = storage_of(all, movable.routed) - storage_of(all, gone);
  for (size_t i : leaving(all, movable.common, room - std::min(room, stays))) gone.push_back(i);
  std::ranges::sort(gone);
  return gone;
}

// Does the same where experts have a cache: of the others as many stay as fit.
Placement with_cache(const ReadPlan& all, const PlaceChoice& choice, uint64_t room) {
  Placement placement = choice.fixed;
  for (size_t i : choice.movable.routed) placement[i] = Tier::cached;
  for (size_t i : choice.tables) placement[i] = Tier::disk;
  for (size_t i : leaving(all, choice.movable.common, room)) placement[i] = Tier::disk;
  return placement;
}

}  // namespace

void ByUse::add(const ReadPlan& all, size_t param) {
  (all.params[param].param->is_routed() ? routed : common).push_back(param);
}

PlaceChoice place_choice(const ReadPlan& all, const std::vector<PlaceRule>& rules, bool has_host) {
  PlaceChoice choice{.fixed = Placement(all.params.size(), Tier::device)};
  for (size_t i = 0; i < all.params.size(); ++i) {
    std::optional<Tier> tier = required_tier(all.params[i], rules);
    const bool has_cache = !has_host && all.params[i].param->is_routed();
    if (tier == Tier::cached && !has_cache) tier = Tier::disk;
    if (tier) choice.fixed[i] = *tier == Tier::host && !has_host ? Tier::device : *tier;
    if (tier) continue;
    if (all.params[i].only_looked_up())
      choice.tables.push_back(i);
    else
      choice.movable.add(all, i);
  }
  return choice;
}

Placement choose_placement(const ReadPlan& all, const FreeBytes& room, const PlaceChoice& choice) {
  const ByUse& movable = choice.movable;
  if (!room.host) {
    const uint64_t common_bytes = storage_of(all, movable.common);
    if (storage_of(all, movable.routed) > room.device - std::min(room.device, common_bytes))
      return with_cache(all, choice, room.device);
  }
  Placement placement = choice.fixed;
  const std::vector<size_t> gone = leaving_by_use(all, movable, room.device);
  for (size_t i : gone) placement[i] = Tier::host;
  for (size_t i : choice.tables) placement[i] = Tier::host;
  const uint64_t host = room.host.value_or(0);
  if (room.host && storage_of(all, gone) + storage_of(all, choice.tables) <= host) return placement;
  for (size_t i : choice.tables) placement[i] = Tier::disk;
  ByUse gone_by_use;
  for (size_t i : gone) gone_by_use.add(all, i);
  for (size_t i : leaving_by_use(all, gone_by_use, host)) placement[i] = Tier::disk;
  return placement;
}

Placement choose_placement(const ReadPlan& all, const FreeBytes& room,
                           const std::vector<PlaceRule>& rules) {
  return choose_placement(all, room, place_choice(all, rules, room.host.has_value()));
}

uint64_t expert_slots(ReadPlan& all, const Placement& placement, const Placement& least,
                      uint64_t room) {
  set_placement(all, placement);
  if (all.experts.empty()) return 0;
  uint64_t stays = 0;
  for (size_t i = 0; i < placement.size(); ++i)
    if (placement[i] == Tier::device && least[i] != Tier::device)
      stays += storage_of(all.params[i]);
  const uint64_t slots = (room - std::min(room, stays)) / all.expert_slot_bytes;
  return std::min<uint64_t>(slots, all.experts.size());
}

LookupShape lookup_shape(const ReadPlan& plan) {
  LookupShape shape;
  for (const TensorPlan& t : plan.tensors) {
    if (t.source > 0) break;  // other planes, of which a streamed table has none
    const ParamPlan& p = plan.params[t.param];
    if (!p.streamed() || p.table == Table::none) continue;
    const RowsInFile& rows = t.rows;
    uint64_t group = rows.row_bytes * static_cast<uint64_t>(std::min(rows.group, rows.rows));
    if (t.group != ScaleGroup::none)  // the spill cache has planes apart
      group += (planes_in_spill(p.format) - 1) * 2 * io::kDirectAlignment;
    shape.slot_bytes =
        std::max(shape.slot_bytes, io::slot_for_any_offset(round_up(group, io::kDirectAlignment)));
    shape.tile_bytes = std::max(shape.tile_bytes, tile_bytes(p, rows.group));
    shape.row_bytes =
        std::max(shape.row_bytes, static_cast<uint64_t>(p.param->cols) * sizeof(float));
  }
  return shape;
}

uint64_t lookup_bytes(const LookupShape& shape) {
  return shape.slot_bytes * kLookupSlots + shape.tile_bytes + shape.row_bytes;
}

uint64_t sweep_slots(const ReadPlan& plan) {
  return std::min<uint64_t>(plan.ring_bytes / plan.slot_bytes, plan.sweep_tiles());
}

uint64_t tile_buffers(const ReadPlan& plan) {
  constexpr uint64_t kTilesPerSlot = 2;
  return std::min<uint64_t>(kTilesPerSlot * sweep_slots(plan), plan.sweep_tiles());
}

uint64_t host_sweep_bytes(const ReadPlan& plan) {
  double sum = 0;
  for (const TiledParam& t : plan.host_sweep) {
    const ParamPlan& p = plan.params[t.param];
    if (!p.is_for_host()) sum += p.param->share * static_cast<double>(p.bytes);
  }
  return static_cast<uint64_t>(sum);
}

uint64_t host_multiplied_bytes(const ReadPlan& plan) {
  double sum = 0;
  for (const ParamPlan& p : plan.params)
    if (p.is_for_host()) sum += p.param->share * static_cast<double>(p.kept_bytes());
  return static_cast<uint64_t>(sum);
}

HostProducts host_products(const ReadPlan& plan, int64_t rows) {
  HostProducts most;
  for (const ParamPlan& p : plan.params) {
    if (!p.is_for_host()) continue;
    const int64_t own = std::min(p.host_rows, rows);
    most.rows = std::max(most.rows, own);
    most.inputs = std::max(most.inputs, own * p.param->cols);
    most.outputs = std::max(most.outputs, own * p.param->rows);
  }
  return most;
}

// A bias is beside its weight, "PATH.bias" and "PATH.weight", or beside a weight whose parts are
// parameters, "PATH.q_proj.weight" or "PATH.q_proj.1.weight".
std::vector<uint32_t> host_vectors(const ReadPlan& plan) {
  std::vector<std::string_view> modules;
  for (const ParamPlan& p : plan.params) {
    if (!p.is_for_host()) continue;
    std::string_view path = p.param->path;
    for (int i = 0; i < 3 && path.find('.') != std::string_view::npos; ++i) {
      path = path.substr(0, path.rfind('.'));
      modules.push_back(path);
    }
  }
  std::ranges::sort(modules);
  std::vector<uint32_t> biases;
  for (uint32_t i = 0; i < plan.params.size() && !modules.empty(); ++i) {
    std::string_view path = plan.params[i].param->path;
    if (plan.params[i].param->role != ParamRole::bias || !path.ends_with(".bias")) continue;
    path.remove_suffix(std::string_view(".bias").size());
    if (std::ranges::binary_search(modules, path)) biases.push_back(i);
  }
  return biases;
}

uint64_t sweep_exchange_bytes(const ReadPlan& plan) {
  const bool exchanges = std::ranges::any_of(plan.sweep, &TiledTensor::exchanged);
  return exchanges ? 2 * plan.slot_bytes : 0;
}

StreamMemory stream_memory(const ReadPlan& plan, bool device_memory) {
  StreamMemory memory;
  memory.host_tiles =
      Buffer::charged_bytes(kHostTileBuffers * plan.host_tile_bytes + plan.unpacked_bytes);
  uint64_t vectors = 0;
  for (uint32_t i : host_vectors(plan)) vectors += plan.params[i].storage;
  memory.host_vectors = Buffer::charged_bytes(vectors);
  uint64_t row = 0;
  for (const ParamPlan& p : plan.params) {
    if (p.tier == Tier::host && p.table != Table::none)
      row = std::max(row, static_cast<uint64_t>(p.param->cols) * sizeof(float));
  }
  memory.host_row = Buffer::charged_bytes(row);
  memory.lookup = Buffer::charged_bytes(lookup_bytes(lookup_shape(plan)));
  memory.experts = Buffer::charged_bytes(plan.expert_slots * plan.expert_slot_bytes);
  if (plan.sweep.empty()) return memory;
  uint64_t slots = plan.slot_bytes * sweep_slots(plan) + sweep_exchange_bytes(plan);
  uint64_t tiles = plan.tile_bytes * tile_buffers(plan);
  memory.sweep = Buffer::charged_bytes(device_memory ? slots : slots + tiles);
  if (device_memory) memory.tiles = Buffer::charged_bytes(tiles);
  return memory;
}

}  // namespace sluice
