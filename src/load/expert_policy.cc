#include "src/load/expert_policy.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

ScoredPolicy::ScoredPolicy(const PolicyShape& shape, const PolicyRules& rules)
    : rules_(rules),
      layer_of_(shape.layer_of.begin(), shape.layer_of.end()),
      slot_of_(shape.layer_of.size(), kNone),
      keys_(shape.layer_of.size(), kNever),
      slots_(shape.slots) {
  uint32_t layers = 0;
  for (uint32_t layer : layer_of_) layers = std::max(layers, layer + 1);
  steps_.assign(layers, 0);
}

// Returns log2 of the score that a key means at the layer's present step.
double ScoredPolicy::aged(double key, uint32_t layer) const {
  if (rules_.half_life <= 0) return key;
  return key - static_cast<double>(steps_[layer]) / rules_.half_life;
}

void ScoredPolicy::touch(uint32_t expert) {
  const uint32_t layer = layer_of_[expert];
  if (rules_.half_life <= 0) {
    keys_[expert] = call_;
  } else {
    const double now = static_cast<double>(steps_[layer]) / rules_.half_life;
    keys_[expert] = std::log2(1 + std::exp2(keys_[expert] - now)) + now;
  }
  if (slot_of_[expert] != kNone) slots_[slot_of_[expert]].key = keys_[expert];
}

// Returns the slot that an expert with this key takes; nullopt: there is none.
std::optional<uint32_t> ScoredPolicy::victim(double key, uint32_t layer) const {
  std::optional<uint32_t> found;
  const auto layers = static_cast<uint32_t>(steps_.size());
  double least = rules_.admits_all ? std::numeric_limits<double>::infinity() : aged(key, layer);
  uint32_t farthest = 0;
  for (uint32_t s = 0; s < taken_; ++s) {
    const Slot& slot = slots_[s];
    if (slot.pinned == call_) continue;
    const double score = aged(slot.key, slot.layer);
    if (score > least || (score == least && !found)) continue;
    const uint32_t distance = (slot.layer + layers - layer - 1) % layers;  // to its layer's turn
    if (score == least && distance <= farthest) continue;
    found = s;
    least = score;
    farthest = distance;
  }
  return found;
}

void ScoredPolicy::use(std::span<ExpertUse> uses) {
  if (uses.empty()) return;
  const uint32_t layer = layer_of_[uses.front().expert];
  ++call_;
  ++steps_[layer];
  for (ExpertUse& use : uses) {
    check(layer_of_[use.expert] == layer, "a policy meets one layer at a time");
    touch(use.expert);
    use.slot = slot_of_[use.expert];
    use.is_hit = use.slot != kNone;
    if (use.is_hit) slots_[use.slot].pinned = call_;
  }
  for (ExpertUse& use : uses) {
    if (use.is_hit) continue;
    if (taken_ < slots_.size()) {
      use.slot = taken_++;
    } else if (const auto found = victim(keys_[use.expert], layer)) {
      use.slot = *found;
      slot_of_[slots_[*found].expert] = kNone;
    } else {
      continue;
    }
    slots_[use.slot] = {keys_[use.expert], use.expert, layer, call_};
    slot_of_[use.expert] = use.slot;
  }
}

void ScoredPolicy::score_as(const ScoredPolicy& other) {
  rules_ = other.rules_;
  keys_ = other.keys_;
  for (Slot& slot : slots_)
    if (slot.expert != kNone) slot.key = keys_[slot.expert];
}

namespace {

constexpr double kLateSteps = 32;
constexpr double kClearly = 1.02;  // times as many hits: else the scores stay as they are

}  // namespace

ExpertPolicy::ExpertPolicy(const PolicyShape& shape)
    : real_(shape, {.half_life = kHalfLives.front()}) {
  uint32_t layers = 1;
  for (uint32_t layer : shape.layer_of) layers = std::max(layers, layer + 1);
  window_ = kLateSteps * layers;
  for (double half_life : kHalfLives) shadows_.emplace_back(shape, PolicyRules{half_life});
}

void ExpertPolicy::use(std::span<ExpertUse> uses) {
  scratch_.assign(uses.begin(), uses.end());
  real_.use(uses);
  size_t best = now_;
  for (size_t i = 0; i < shadows_.size(); ++i) {
    shadows_[i].use(scratch_);
    const auto hits = std::ranges::count(scratch_, true, &ExpertUse::is_hit);
    hits_[i] += static_cast<double>(hits) - hits_[i] / window_;
    if (hits_[i] > hits_[best]) best = i;
  }
  if (best == now_ || hits_[best] <= kClearly * hits_[now_]) return;
  now_ = best;
  real_.score_as(shadows_[best]);
}

}  // namespace sluice
