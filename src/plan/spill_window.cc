#include "src/plan/spill_window.h"

#include <algorithm>

#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kLeastSlot = 64 * KiB, kMostSlot = 2 * MiB;
constexpr uint64_t kMeasuringSlots = 4;  // wait for their scale

}  // namespace

SpillWindow spill_window(const ReadPlan& plan, uint32_t tensor, uint64_t memory) {
  const TensorPlan& t = plan.tensors[tensor];
  const ParamPlan& param = plan.params[t.param];
  const int64_t all = param.param->pieces[t.piece].cut.rows, step = row_step(plan, tensor);
  Param part;
  const ReadPlan group = lay_out_part(plan, tensor, 0, std::min(2 * step, all), part);
  const uint64_t least_slot =
      std::max(kLeastSlot, round_up(group.widest_group + kAlignmentSlack, 4096));
  const uint64_t least_slots = group.tensors.front().is_measured() ? kMeasuringSlots : 1;
  const auto rows_of_step = static_cast<int64_t>(round_up(step, kPanelRows));
  // With the largest value of each row.
  const uint64_t step_bytes = storage_bytes(param.format, rows_of_step, param.param->cols) +
                              round_up(static_cast<uint64_t>(step) * sizeof(float), kCellBytes);
  const uint64_t least_ring = least_slot * least_slots;
  // One scale is found before, by the largest values of all rows.
  const uint64_t measuring = has_tensor_scale(t.group)
                                 ? round_up(static_cast<uint64_t>(all) * sizeof(float), kCellBytes)
                                 : 0;
  SpillWindow window;
  window.least_memory = least_ring + std::max(step_bytes, measuring);
  if (memory < window.least_memory) return window;
  const uint64_t slot =
      std::max(least_slot, round_down(std::clamp(memory / 32, kLeastSlot, kMostSlot), 4096));
  const uint64_t ring = std::max(slot * least_slots, round_down(memory / 4, slot));
  const bool fits = ring + std::max(step_bytes, measuring) <= memory;
  window.staging = {fits ? slot : least_slot, fits ? ring : least_ring};
  window.ring_bytes = window.staging.ring_bytes;
  const auto steps = static_cast<int64_t>((memory - window.ring_bytes) / step_bytes);
  window.rows = steps >= ceil_div(all, step) ? all : steps * step;
  return window;
}

uint64_t least_to_write(const ReadPlan& plan, const SpillLayout& layout) {
  uint64_t most = 0;
  for (const SpilledTensor& s : layout.tensors)
    most = std::max(most, spill_window(plan, s.tensor, 0).least_memory);
  return most;
}

}  // namespace sluice
