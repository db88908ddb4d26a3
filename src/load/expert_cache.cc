#include "src/load/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// Copies rows to where they are among all rows of their parameter.
void copy_rows(const Weight& from, const Weight& all, int64_t row) {
  for (Plane plane : kPlanes) {
    if (all.plane(plane) == nullptr || from.plane(plane) == nullptr) continue;
    std::memcpy(all.plane(plane) + plane_offset(all.format, plane, row, all.cols),
                from.plane(plane), plane_bytes(all.format, plane, from.rows, all.cols));
  }
}

}  // namespace

ExpertCounts& ExpertCounts::operator+=(const ExpertCounts& later) {
  slots = later.slots;
  uses += later.uses;
  hits += later.hits;
  hit_bytes += later.hit_bytes;
  kept += later.kept;
  return *this;
}

std::vector<uint32_t> ExpertCache::layers_of(const ReadPlan& plan) {
  std::vector<uint32_t> layers;
  uint32_t layer = 0, unit = plan.experts.empty() ? 0 : plan.experts.front().unit;
  for (const CachedExpert& e : plan.experts) {
    if (e.unit != unit) ++layer;
    unit = e.unit;
    layers.push_back(layer);
  }
  return layers;
}

ExpertCache::ExpertCache(const ReadPlan& plan, Ledger& ledger)
    : plan_(plan),
      memory_(ledger, Use::staging, "expert cache", plan.expert_slots * plan.expert_slot_bytes,
              Buffer::Touch::lazily),
      policy_({plan.expert_slots > 0 ? layers_of(plan) : std::vector<uint32_t>(),
               static_cast<uint32_t>(plan.expert_slots)}) {
  counts_.slots = plan.expert_slots;
  if (plan.expert_slots == 0) return;
  experts_.resize(plan.experts.size());
  distances_ = ReuseDistances(experts_.size(), plan.expert_slots);
  few_ = experts_.size() / (layers_of(plan).back() + 1) / 2;
  for (uint32_t e = 0; e < plan.experts.size(); ++e) {
    uint64_t offset = 0;
    for (uint32_t p = plan.experts[e].first_param; p < plan.experts[e].end_param; ++p) {
      const ParamPlan& param = plan.params[p];
      if (param.tier != Tier::cached) continue;
      places_.emplace(param.param, Place{e, p, offset});
      offset += tile_bytes(param, param.param->rows);
    }
  }
  for (const TiledTensor& t : plan.sweep) {
    const auto place = places_.find(plan.params[plan.tensors[t.tensor].param].param);
    if (place == places_.end()) continue;
    Expert& expert = experts_[place->second.expert];
    if (expert.tiles == 0) expert.first_tile = t.first_tile;
    check(t.first_tile == expert.first_tile + expert.tiles, "an expert's tiles follow one another");
    expert.tiles += t.tiles;
  }
}

void ExpertCache::want(const Param& param) {
  const uint32_t e = places_.at(&param).expert;
  if (std::exchange(experts_[e].is_wanted, true)) return;
  wanted_.push_back({.expert = e});
}

std::span<const uint32_t> ExpertCache::choose() {
  for (uint32_t e : hits_) experts_[e].is_hit = false;
  for (uint32_t e : filled_) experts_[e].is_filled = false;
  hits_.clear();
  filled_.clear();
  policy_.use(wanted_);
  for (ExpertUse& use : wanted_) {
    Expert& expert = experts_[use.expert];
    expert.is_wanted = false;
    // A step that ended early may have left a part of it.
    expert.is_hit = use.is_hit = use.is_hit && expert.there == expert.tiles;
    if (!expert.is_hit) {
      expert.there = 0;
      expert.is_filled = use.slot != ExpertPolicy::kNone;
      if (expert.is_filled) filled_.push_back(use.expert);
      continue;
    }
    hits_.push_back(use.expert);
    counts_.hit_bytes += plan_.experts[use.expert].bytes;
  }
  if (wanted_.size() <= few_) distances_.use(wanted_);
  counts_.hits += hits_.size();
  counts_.uses += wanted_.size();
  wanted_.clear();
  return hits_;
}

Weight ExpertCache::weight(const Place& place) const {
  const ParamPlan& param = plan_.params[place.param];
  std::byte* slot = memory_.data() + policy_.slot_of(place.expert) * plan_.expert_slot_bytes;
  return tile_view(param, param.param->rows, slot + place.offset);
}

std::optional<Weight> ExpertCache::find(const Param& param) const {
  const auto place = places_.find(&param);
  if (place == places_.end() || !experts_[place->second.expert].is_hit) return std::nullopt;
  return weight(place->second);
}

std::optional<Weight> ExpertCache::place(const Param& param, int64_t row, int64_t rows) const {
  const auto found = places_.find(&param);
  if (found == places_.end() || !experts_[found->second.expert].is_filled) return std::nullopt;
  Weight all = weight(found->second);
  if (all.order != nullptr || all.tables != nullptr || row % kPanelRows != 0) return std::nullopt;
  all = rows_from(all, row);
  all.rows = ceil_div(rows, kPanelRows) * kPanelRows;
  return all;
}

void ExpertCache::keep(const Param& param, uint32_t first_tile, uint32_t tiles,
                       const Weight& weight, int64_t row) {
  const auto place = places_.find(&param);
  if (place == places_.end() || policy_.slot_of(place->second.expert) == ExpertPolicy::kNone)
    return;
  Expert& expert = experts_[place->second.expert];
  if (expert.there == expert.tiles || first_tile != expert.first_tile + expert.there) return;
  const Weight all = this->weight(place->second);
  if (rows_from(all, row).data != weight.data) copy_rows(weight, all, row);
  expert.there += tiles;
  counts_.kept += expert.there == expert.tiles;
}

}  // namespace sluice
