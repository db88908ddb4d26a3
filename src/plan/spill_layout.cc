#include "src/plan/spill_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kCodesAlignment = 4096;  // tensors share no page
constexpr uint64_t kIndexAlignment = 64;

std::optional<SpilledTensor> spilled_form(const ReadPlan& plan, uint32_t t) {
  const TensorPlan& tensor = plan.tensors[t];
  const ParamPlan& param = plan.params[tensor.param];
  const Piece& piece = param.param->pieces[tensor.piece];
  bool packed = param.format.layout == WeightLayout::packed;
  if (tensor.group == ScaleGroup::none || !packed || tensor.stored->bytes == 0) return std::nullopt;
  // A transposed tensor is encoded in parts of all its panels.
  if (tensor.transposed) return std::nullopt;
  // Padded to a panel it could be larger than what it is made of.
  if (piece.cut.rows < kPanelRows) return std::nullopt;
  SpilledTensor s;
  s.tensor = t;
  s.panels = static_cast<uint64_t>(ceil_div(piece.cut.rows, kPanelRows));
  s.panel_bytes = plane_bytes(param.format, Plane::codes, kPanelRows, param.param->cols);
  s.panel_scales = static_cast<uint64_t>(panel_scales(param.format, param.param->cols));
  return s;
}

uint64_t index_bytes(const SpilledTensor& s) {
  return kSpillRecordBytes + round_up(s.panels * s.panel_scales * sizeof(float), kIndexAlignment) +
         round_up(s.panels * sizeof(uint64_t), kIndexAlignment);
}

// Returns the tensors that fit, in the order of the plan.
std::vector<SpilledTensor> chosen(const ReadPlan& plan, uint64_t most_bytes) {
  std::vector<SpilledTensor> all;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    if (auto s = spilled_form(plan, t)) all.push_back(*s);
  }
  auto stays = [&](const SpilledTensor& s) {
    return !plan.params[plan.tensors[s.tensor].param].streamed();
  };
  std::ranges::stable_sort(all, {}, stays);
  uint64_t taken = kSpillHeaderBytes;
  std::erase_if(all, [&](const SpilledTensor& s) {
    uint64_t bytes = round_up(s.codes_bytes(), kCodesAlignment) + index_bytes(s);
    if (bytes > most_bytes || taken > most_bytes - bytes) return true;
    taken += bytes;
    return false;
  });
  std::ranges::sort(all, {}, &SpilledTensor::tensor);
  all.shrink_to_fit();
  return all;
}

SpillLayout lay_out(const ReadPlan& plan, std::vector<SpilledTensor> tensors) {
  SpillLayout layout;
  layout.entry_of.assign(plan.tensors.size(), -1);
  layout.tensors = std::move(tensors);
  uint64_t index = layout.tensors.size() * kSpillRecordBytes;
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    SpilledTensor& s = layout.tensors[i];
    layout.entry_of[s.tensor] = static_cast<int32_t>(i);
    s.codes = layout.codes_end;
    layout.codes_end = round_up(s.codes + s.codes_bytes(), kCodesAlignment);
    s.record = i * kSpillRecordBytes;
    s.scales = index;
    s.checksums = round_up(s.scales + s.panels * s.panel_scales * sizeof(float), kIndexAlignment);
    index = round_up(s.checksums + s.panels * sizeof(uint64_t), kIndexAlignment);
  }
  layout.index_bytes = index;
  return layout;
}

}  // namespace

SpillLayout spill_layout(const ReadPlan& plan, uint64_t most_bytes) {
  return lay_out(plan, chosen(plan, most_bytes));
}

SpillLayout spill_layout(const ReadPlan& plan, const std::vector<uint32_t>& tensors) {
  std::vector<SpilledTensor> all;
  for (uint32_t t : tensors) {
    if (auto s = spilled_form(plan, t)) all.push_back(*s);
  }
  return lay_out(plan, std::move(all));
}

uint64_t sweep_bytes(const ReadPlan& plan, const SpillLayout& spilled, const TiledTensor& tensor) {
  const SpilledTensor* codes = spilled.find(tensor.tensor);
  const uint64_t bytes = codes != nullptr ? codes->codes_bytes() : plan.tiles_bytes(tensor);
  const double used = plan.params[plan.tensors[tensor.tensor].param].param->used;
  return used < 1 ? static_cast<uint64_t>(used * static_cast<double>(bytes)) : bytes;
}

uint64_t sweep_bytes(const ReadPlan& plan, const SpillLayout& spilled) {
  uint64_t sum = 0;
  for (const TiledTensor& t : plan.sweep) sum += sweep_bytes(plan, spilled, t);
  return sum;
}

}  // namespace sluice
