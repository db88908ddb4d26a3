#include "src/plan/spill_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "src/base/checksum.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kCodesAlignment = 4096;  // tensors share no page
constexpr uint64_t kIndexAlignment = 64;

// Checksum of how a tensor is stored and packed: a file made by another plan has the same planes
// where it has the same one.
uint64_t packing(const TensorPlan& tensor, const Piece& piece, const WeightFormat& format) {
  const View& v = piece.view;
  int added_to_zeros = 0;
  for (const StoredPlane& plane : tensor.matrix->planes)
    added_to_zeros = std::max(added_to_zeros, int{plane.words.added_to_zeros});
  const std::string text = fmt::format(
      "{} {} {} | {} {} {} {} | {} {} {} {} | {} {} {} | {} {} {} {} {}",
      dtype_name(tensor.stored->dtype), tensor.stored->file, tensor.stored->offset, piece.cut.row,
      piece.cut.rows, piece.cut.col, piece.cut.cols, v.index.value_or(-1), v.first, v.group,
      v.stride, dtype_name(format.dtype), format.bits, static_cast<int>(format.layout),
      static_cast<int>(format.table), dtype_name(format.scale_type), format.scale_cols,
      static_cast<int>(format.outer), added_to_zeros);
  return checksum64(std::as_bytes(std::span(text)));
}

// Returns whether a tensor is a part of the file, by a plan that streams it or not.
bool is_spilled(const ReadPlan& plan, const TensorPlan& tensor, bool streamed) {
  const ParamPlan& param = plan.params[tensor.param];
  if (tensor.source > 0) return false;
  // Most tensors of a large plan end here, before what is far apart in memory is looked at.
  const bool may_be = tensor.origin == Origin::spill || tensor.group != ScaleGroup::none ||
                      (streamed && plan.is_packed_in_spill(tensor));
  if (!may_be || tensor.stored->bytes == 0) return false;
  if (tensor.origin == Origin::spill) return true;
  // A GPU encodes into its own memory.
  bool by_cpu = plan.matrix_layout == MatrixLayout::packed;
  if (!by_cpu || param.format.layout != WeightLayout::packed) return false;
  // An input-major tensor is encoded in parts of all its panels.
  if (tensor.transposed || tensor.plane().input_major()) return false;
  // Padded to a panel it could be larger than what it is made of.
  return param.param->pieces[tensor.piece].cut.rows >= kPanelRows;
}

std::optional<SpilledTensor> spilled_form(const ReadPlan& plan, uint32_t t, bool streams_all) {
  const TensorPlan& tensor = plan.tensors[t];
  const ParamPlan& param = plan.params[tensor.param];
  const Piece& piece = param.param->pieces[tensor.piece];
  if (!is_spilled(plan, tensor, streams_all || param.streamed())) return std::nullopt;
  SpilledTensor s;
  s.tensor = t;
  s.panels = static_cast<uint64_t>(ceil_div(piece.cut.rows, kPanelRows));
  s.planes = static_cast<uint32_t>(planes_in_spill(param.format));
  for (size_t i = 0; i < s.planes; ++i)
    s.panel_bytes[i] = plane_bytes(param.format, kPlanes[i], kPanelRows, param.param->cols);
  if (s.planes == 1)
    s.panel_scales = static_cast<uint64_t>(panel_scales(param.format, param.param->cols));
  else if (param.format.outer != Outer::none)
    s.panel_scales = 1;  // the outer one
  s.packing = packing(tensor, piece, param.format);
  s.name_bytes = static_cast<uint32_t>(spill_name(plan, t).size());
  return s;
}

// Bytes of a tensor in the file: its planes, each from a page on, and its part of the index.
uint64_t bytes_in_file(SpilledTensor s) {
  uint64_t sum = s.place_in_index(0);
  for (size_t i = 0; i < s.planes; ++i)
    sum += round_up(s.panels * s.panel_bytes[i], kCodesAlignment);
  return sum;
}

// Returns the tensors that fit, in the order of the plan.
std::vector<SpilledTensor> chosen(const ReadPlan& plan, uint64_t most_bytes, bool streams_all) {
  std::vector<SpilledTensor> all;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    if (auto s = spilled_form(plan, t, streams_all)) all.push_back(*s);
  }
  auto rank = [&](const SpilledTensor& s) {
    const TensorPlan& t = plan.tensors[s.tensor];
    return t.origin == Origin::spill ? 0 : plan.params[t.param].streamed() ? 1 : 2;
  };
  std::ranges::stable_sort(all, {}, rank);
  uint64_t taken = kSpillHeaderBytes;
  std::erase_if(all, [&](const SpilledTensor& s) {
    const uint64_t bytes = bytes_in_file(s);
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
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    SpilledTensor& s = layout.tensors[i];
    layout.entry_of[s.tensor] = static_cast<int32_t>(i);
    for (size_t p = 0; p < s.planes; ++p) {
      s.begin[p] = layout.codes_end;
      layout.codes_end = round_up(s.begin[p] + s.panels * s.panel_bytes[p], kCodesAlignment);
    }
    layout.index_bytes = s.place_in_index(layout.index_bytes);
  }
  return layout;
}

}  // namespace

uint64_t SpilledTensor::place_in_index(uint64_t at) {
  record = at;
  name = record + kSpillRecordBytes;
  scales = round_up(name + name_bytes, kIndexAlignment);
  checksums = round_up(scales + panels * panel_scales * sizeof(float), kIndexAlignment);
  return round_up(checksums + panels * planes * sizeof(uint64_t), kIndexAlignment);
}

std::string spill_name(const ReadPlan& plan, uint32_t tensor) {
  const TensorPlan& t = plan.tensors[tensor];
  const Piece& piece = plan.params[t.param].param->pieces[t.piece];
  const View& v = piece.view;
  const Cut& cut = piece.cut;
  std::string name = t.stored->name;
  if (v.index) name += fmt::format("[{}]", *v.index);
  if (v.first != 0 || v.stride != v.group)
    name += fmt::format(" {}+{} of {}", v.first, v.group, v.stride);
  if (cut.rows != piece.rows || cut.cols != piece.cols)
    name += fmt::format(" rows {}+{} columns {}+{}", cut.row, cut.rows, cut.col, cut.cols);
  return name;
}

SpillLayout spill_layout(const ReadPlan& plan, uint64_t most_bytes) {
  return lay_out(plan, chosen(plan, most_bytes, false));
}

SpillLayout largest_spill_layout(const ReadPlan& plan) {
  return lay_out(plan, chosen(plan, UINT64_MAX, true));
}

uint64_t needed_file_bytes(const ReadPlan& plan) {
  uint64_t bytes = kSpillHeaderBytes;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    if (plan.tensors[t].origin != Origin::spill) continue;
    if (auto s = spilled_form(plan, t, false)) bytes += bytes_in_file(*s);
  }
  return bytes;
}

std::vector<uint64_t> sweep_bytes_of_units(const ReadPlan& plan, const SpillLayout& spilled,
                                           int64_t tokens) {
  std::vector<uint64_t> units(plan.units.size());
  const double misses = plan.expert_misses(tokens);
  const auto counted = [&](uint64_t bytes, const ParamPlan& param) {
    double share = used_share(*param.param, tokens);
    if (param.tier == Tier::cached) share *= misses;
    return share < 1 ? static_cast<uint64_t>(share * static_cast<double>(bytes)) : bytes;
  };
  // Bytes of tensors that are alike, on disk and in the cache, from the checkpoint; 0: not known.
  std::vector<std::array<uint64_t, 2>> stored(plan.tensors.size());
  for (const TiledTensor& t : plan.sweep) {
    const TensorPlan& tensor = plan.tensors[t.tensor];
    const ParamPlan& param = plan.params[tensor.param];
    if (const SpilledTensor* codes = spilled.find(t.tensor)) {
      units[param.unit] += counted(codes->bytes(), param);
      continue;
    }
    uint64_t& alike = stored[tensor.alike][param.tier == Tier::cached ? 1 : 0];
    if (alike == 0) alike = counted(plan.tiles_bytes(t), param);
    units[param.unit] += alike;
  }
  return units;
}

uint64_t sweep_bytes(const ReadPlan& plan, const SpillLayout& spilled, int64_t tokens) {
  const std::vector<uint64_t> units = sweep_bytes_of_units(plan, spilled, tokens);
  return std::accumulate(units.begin(), units.end(), uint64_t{0});
}

}  // namespace sluice
