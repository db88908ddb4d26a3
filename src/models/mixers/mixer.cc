#include "src/models/mixers/mixer.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

std::unique_ptr<Mixer> make_mixer(const MixerSpec& spec, const MixerPlace& place) {
  return std::visit([&](const auto& held) { return make_mixer(held, place); }, spec);
}

namespace {

// Returns heads that are divided among so many ranks; none where they cannot be.
std::optional<Dimension> divided(Dimension heads, const Dimension& kv_heads, int64_t ranks,
                                 bool evenly) {
  const int64_t all = heads.units(), kv = kv_heads.units();
  const bool kv_fits = kv % ranks == 0 || ranks % kv == 0;
  if (all % ranks == 0 && kv_fits && heads.size / ranks % heads.multiple_of == 0) return heads;
  const int64_t group = heads.size / kv;  // the heads of a KV head
  if (all % kv != 0 || group % heads.multiple_of != 0) return std::nullopt;
  if (kv >= ranks) {
    heads.multiple_of = group;
    return heads;
  }
  // Some ranks have the same KV head, and each some of its heads.
  if (evenly && (kv > 1 || heads.multiple_of > 1)) return std::nullopt;
  const int64_t most = kv * (group / std::lcm(heads.unit, heads.multiple_of));
  if (most < ranks) return std::nullopt;
  heads.groups = kv;
  return heads;
}

}  // namespace

void divide_heads(Dimension& heads, const Dimension& kv_heads, Rank rank, bool evenly) {
  if (const std::optional<Dimension> all = divided(heads, kv_heads, rank.size, evenly)) {
    heads = *all;
    return;
  }
  int64_t fewer = rank.size - 1;
  while (!divided(heads, kv_heads, fewer, evenly)) --fewer;
  fail(ErrorKind::usage,
       "--tensor-parallel-size {}: {} heads and {} KV heads cannot be divided among so many ranks; "
       "choose {}",
       rank.size, heads.units(), kv_heads.units(), fewer);
}

Dimension resized(const Dimension& heads, int64_t unit) {
  const int64_t together = std::lcm(heads.unit, heads.multiple_of) / heads.unit;
  return {.size = heads.units() * unit,
          .unit = unit,
          .multiple_of = together * unit,
          .padded_to = ceil_div(heads.padded_to, heads.unit) * unit,
          .groups = heads.groups};
}

void add_state(int64_t columns, int64_t keys, WorkspaceNeeds& needs) {
  needs.max_cols = std::max(needs.max_cols, columns);
  needs.state_keys = std::max(needs.state_keys, keys);
}

int64_t padded_columns(int64_t outputs) { return ceil_div(outputs, kPanelRows) * kPanelRows; }

int64_t padded_columns(std::span<const Dimension> parts, Rank rank) {
  int64_t columns = 0;
  for (const Dimension& part : parts) columns += padded_columns(part.share(rank).count);
  return columns;
}

std::vector<LinearPart> parts_by_rows(const LinearSpec& linear,
                                      std::span<const Dimension> dimensions,
                                      const MixerPlace& place) {
  check(linear.parts.size() == dimensions.size(), "a mixer's parts");
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < dimensions.size(); ++i)
    parts.push_back({place.name(linear.parts[i].source), dimensions[i].size,
                     Shard::by_rows(dimensions[i]), linear.parts[i].view});
  return parts;
}

std::vector<LinearPart> part_by_cols(const LinearSpec& linear, const Dimension& heads,
                                     int64_t outputs, const MixerPlace& place) {
  const PartSpec& part = linear.parts.front();
  return {{place.name(part.source), outputs, Shard::by_cols(heads), part.view}};
}

}  // namespace sluice
