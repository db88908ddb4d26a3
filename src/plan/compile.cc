#include <algorithm>
#include <numeric>
#include <optional>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/bind.h"
#include "src/plan/read_plan.h"

namespace sluice {
namespace {

// A reader may widen a read to its file's alignment at both ends, inside the slot.
constexpr uint64_t kAlignmentSlack = 8192;
constexpr uint64_t kFewestSlots = 4;

bool quantizes(const QuantizeRequest& quantize, const Param& param) {
  if (quantize.scheme.group == ScaleGroup::none || param.role == ParamRole::bias) return false;
  // A tied table is embedding and head at once.
  bool tied_head = param.role == ParamRole::embedding && param.layout == WeightLayout::packed;
  return quantize.roles.contains(param.role) ||
         (tied_head && quantize.roles.contains(ParamRole::head));
}

// The type that holds what all pieces of a parameter are kept in: where they differ, float32.
DType common_dtype(const Binding& binding, uint32_t param) {
  std::optional<DType> common;
  for (const TensorPlan& t : binding.tensors) {
    if (t.param != param) continue;
    DType kept = kept_dtype(t.stored->dtype);
    common = common.value_or(kept) == kept ? kept : DType::f32;
  }
  return *common;
}

// What is multiplied lies as the device wants it, what is only looked up in plain rows.
WeightLayout layout_of(const Param& param, const QuantizeRequest& quantize) {
  return param.layout == WeightLayout::packed ? quantize.matrix_layout : WeightLayout::rows;
}

WeightFormat format_of(const Param& param, DType stored, const QuantizeRequest& quantize) {
  bool vector = param.pieces.front().vector;
  if (quantizes(quantize, param)) {
    if (param.cols > quantize.scheme.most_cols)
      fail(ErrorKind::refused,
           "{} has {} columns, and {} can sum {} of them at most: choose another --quantization",
           param.path, param.cols, quantize.scheme.name, quantize.scheme.most_cols);
    WeightFormat format = quantize.scheme.format(stored, layout_of(param, quantize));
    format.whole_blocks = format.scales == ScaleKind::per_block &&
                          std::ranges::all_of(param.pieces, [](const Piece& piece) {
                            return piece.offset % kScaleBlock == 0;
                          });
    return format;
  }
  if (vector)
    return {DType::f32, WeightLayout::rows, ScaleKind::none};  // small, and read by every kernel
  return {stored, layout_of(param, quantize), ScaleKind::none};
}

}  // namespace

ReadPlan lay_out(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const Placement& placement) {
  Binding binding = bind_tensors(model, index);
  check(placement.empty() || placement.size() == binding.params.size(), "one tier a parameter");
  ReadPlan plan;
  for (Module* unit : model.root->units()) plan.units.push_back({unit->path(), 0, 0, 0});
  for (uint32_t i = 0; i < binding.params.size(); ++i) {
    Param* param = binding.params[i];
    ParamPlan p{
        param,
        binding.param_units[i],
        format_of(*param, quantize.to_bf16 ? DType::bf16 : common_dtype(binding, i), quantize),
        0,
        0,
        0,
        placement.empty() ? Tier::device : placement[i]};
    UnitPlan& unit = plan.units[p.unit];
    p.bytes = weight_bytes(p.format, param->rows, param->cols);
    p.storage = storage_bytes(p.format, param->rows, param->cols);
    if (!p.streamed()) {
      uint64_t& storage = p.tier == Tier::host ? unit.host_bytes : unit.storage_bytes;
      p.offset = storage;
      storage += p.storage;
    }
    plan.params.push_back(p);
  }
  for (TensorPlan t : binding.tensors) {
    const Piece& piece = binding.params[t.param]->pieces[t.piece];
    if (piece.view.transposed || piece.runs() > 1)
      fail(ErrorKind::no_fit, "{}: tensors of this layout cannot be loaded", piece.source);
    t.group =
        quantizes(quantize, *binding.params[t.param]) ? quantize.scheme.group : ScaleGroup::none;
    plan.tensors.push_back(t);
  }
  plan.ignored = binding.ignored;
  plan.kv_scales = binding.kv_scales;
  return plan;
}

RowsInFile rows_in_file(const ReadPlan& plan, const TensorPlan& t) {
  const ParamPlan& p = plan.params[t.param];
  const Piece& piece = p.param->pieces[t.piece];
  const DType stored = t.stored->dtype;
  uint64_t row = row_bytes(stored, piece.vector ? 1 : piece.cols);
  uint64_t skip = piece.vector ? 0 : row_bytes(stored, piece.cut.col);
  uint64_t begin = t.stored->offset;
  if (piece.view.index)
    begin += t.stored->bytes / static_cast<uint64_t>(t.stored->shape[0]) *
             static_cast<uint64_t>(*piece.view.index);
  int64_t first = piece.stored_output(piece.vector ? piece.cut.col : piece.cut.row);
  begin += static_cast<uint64_t>(first) * row;
  // What is multiplied comes in whole panels, in whatever layout: tiles begin where panels do.
  int64_t group = p.param->layout == WeightLayout::packed ? kPanelRows : 1;
  if (t.group == ScaleGroup::block) group = kScaleBlock;
  if (piece.vector) {  // one row: read just the part
    return {begin, row_bytes(stored, piece.cut.cols), 1, 1, 0};
  }
  return {begin, row, piece.cut.rows, group, skip};
}

namespace {

uint64_t slot_bytes_for(const ReadPlan& plan, const Staging& staging) {
  uint64_t slot = staging.slot_bytes;
  for (const TensorPlan& t : plan.tensors) {
    RowsInFile rows = rows_in_file(plan, t);
    uint64_t together = rows.row_bytes * static_cast<uint64_t>(std::min(rows.group, rows.rows));
    slot = std::max(slot, round_up(together + kAlignmentSlack, 4096));
  }
  return slot;
}

// Appends the reads of one tensor: as many whole row groups a span as a slot holds. Small tensors
// that follow one another in the file share a span.
class SpanWriter {
 public:
  SpanWriter(ReadPlan& plan, uint64_t most_bytes, uint64_t ring_slots)
      : plan_(plan), most_(most_bytes), ring_slots_(ring_slots) {}

  // For the load. Of a streamed tensor with one scale, the largest value is found here once and for
  // all.
  void append(uint32_t tensor) {
    TensorPlan& t = plan_.tensors[tensor];
    bool streamed = plan_.params[t.param].streamed();
    if (t.group != ScaleGroup::tensor) {
      if (!streamed) append_spans(tensor, false, true);
      return;
    }
    RowsInFile rows = rows_in_file(plan_, t);
    uint64_t spans = static_cast<uint64_t>(ceil_div(rows.rows, rows_per_span(rows)));
    t.measure_spans = static_cast<uint32_t>(spans);
    t.read_twice = streamed || spans > ring_slots_;
    append_spans(tensor, true, !t.read_twice);
    if (t.read_twice && !streamed) append_spans(tensor, false, true);
  }

  void append_to_sweep(uint32_t tensor) {
    RowsInFile rows = rows_in_file(plan_, plan_.tensors[tensor]);
    int64_t step = rows_per_span(rows);
    auto tiles = static_cast<uint32_t>(ceil_div(rows.rows, step));
    plan_.sweep.push_back({tensor, plan_.sweep_tiles(), tiles, step});
    const ParamPlan& param = plan_.params[plan_.tensors[tensor].param];
    plan_.tile_bytes = std::max(plan_.tile_bytes, tile_bytes(param, step));
  }

 private:
  // Spans of one tensor are about equally long: a short one costs the disk as much as a long one.
  int64_t rows_per_span(const RowsInFile& rows) const {
    int64_t groups = ceil_div(rows.rows, rows.group);
    auto fit = std::max<int64_t>(1, static_cast<int64_t>(most_ / rows.row_bytes) / rows.group);
    return ceil_div(groups, ceil_div(groups, fit)) * rows.group;
  }

  void append_spans(uint32_t tensor, bool measure, bool encode) {
    const TensorPlan& t = plan_.tensors[tensor];
    RowsInFile rows = rows_in_file(plan_, t);
    int64_t step = rows_per_span(rows);
    uint32_t unit = plan_.params[t.param].unit;
    for (int64_t row = 0; row < rows.rows; row += step) {
      int64_t count = std::min(step, rows.rows - row);
      uint64_t begin = rows.begin + static_cast<uint64_t>(row) * rows.row_bytes;
      uint64_t length = static_cast<uint64_t>(count) * rows.row_bytes;
      bool whole = row == 0 && count == rows.rows && t.group != ScaleGroup::tensor;
      Span* span = whole ? joinable(t.stored->file, unit, begin, length) : nullptr;
      if (span == nullptr) {
        auto first_move = static_cast<uint32_t>(plan_.moves.size());
        plan_.spans.push_back({t.stored->file, begin, 0, unit, first_move, 0, measure, encode});
        span = &plan_.spans.back();
        last_joins_ = whole;
      }
      plan_.moves.push_back({tensor, row, count, begin - span->offset + rows.skip});
      span->moves += 1;
      span->length = begin + length - span->offset;
      if (!plan_.params[t.param].streamed()) plan_.units[unit].read_bytes += length;
    }
  }

  // The last span, when these bytes follow it closely enough to be one read.
  Span* joinable(uint32_t file, uint32_t unit, uint64_t begin, uint64_t length) {
    constexpr uint64_t kClose = 4096;  // a gap that costs less than a read of its own
    if (plan_.spans.empty() || !last_joins_) return nullptr;
    Span& last = plan_.spans.back();
    uint64_t end = last.offset + last.length;
    bool close = last.file == file && last.unit == unit && begin >= end && begin - end <= kClose;
    return close && begin + length - last.offset <= most_ ? &last : nullptr;
  }

  ReadPlan& plan_;
  uint64_t most_;
  uint64_t ring_slots_;
  bool last_joins_ = false;
};

// The streamed tensors as a forward pass meets them: in the order of the module tree, except that a
// table which is the head too comes last.
std::vector<uint32_t> sweep_order(const ReadPlan& plan) {
  std::vector<uint32_t> order;
  std::vector<uint32_t> tied;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const ParamPlan& p = plan.params[plan.tensors[t].param];
    if (!p.streamed() || plan.tensors[t].stored->bytes == 0) continue;
    if (p.param->role != ParamRole::embedding) {
      order.push_back(t);
    } else if (p.param->layout == WeightLayout::packed) {
      tied.push_back(t);
    }
  }
  order.insert(order.end(), tied.begin(), tied.end());
  return order;
}

}  // namespace

ReadPlan compile(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const Staging& staging, const Placement& placement) {
  ReadPlan plan = lay_out(model, index, quantize, placement);
  plan.slot_bytes = slot_bytes_for(plan, staging);

  std::vector<uint32_t> order(plan.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t t) {
    return std::pair(plan.tensors[t].stored->file, rows_in_file(plan, plan.tensors[t]).begin);
  });
  uint64_t slots = std::max(kFewestSlots, staging.ring_bytes / plan.slot_bytes);
  SpanWriter writer(plan, plan.slot_bytes - kAlignmentSlack, slots);
  for (uint32_t t : order) {
    if (plan.tensors[t].stored->bytes > 0) writer.append(t);
  }
  for (uint32_t t : sweep_order(plan)) writer.append_to_sweep(t);
  plan.ring_bytes =
      plan.slot_bytes *
      std::min<uint64_t>(slots, std::max<uint64_t>(plan.spans.size(), plan.sweep_tiles()));
  return plan;
}

uint64_t tile_bytes(const ParamPlan& param, int64_t rows) {
  return storage_bytes(param.format, ceil_div(rows, kPanelRows) * kPanelRows, param.param->cols);
}

Weight tile_view(const ParamPlan& param, int64_t rows, std::byte* memory) {
  return weight_in(param.format, ceil_div(rows, kPanelRows) * kPanelRows, param.param->cols,
                   memory);
}

uint32_t ReadPlan::sweep_tiles() const {
  return sweep.empty() ? 0 : sweep.back().first_tile + sweep.back().tiles;
}

const TiledTensor& ReadPlan::tensor_of_tile(uint32_t index) const {
  return *(std::ranges::upper_bound(sweep, index, {}, &TiledTensor::first_tile) - 1);
}

Tile ReadPlan::tile(uint32_t index) const {
  const TiledTensor& tiled = tensor_of_tile(index);
  const TensorPlan& tensor = tensors[tiled.tensor];
  RowsInFile rows = rows_in_file(*this, tensor);
  int64_t first = (index - tiled.first_tile) * tiled.tile_rows;
  int64_t count = std::min(tiled.tile_rows, rows.rows - first);
  return {tensor.stored->file, rows.begin + static_cast<uint64_t>(first) * rows.row_bytes,
          static_cast<uint64_t>(count) * rows.row_bytes, params[tensor.param].unit,
          Move{tiled.tensor, first, count, rows.skip}};
}

int64_t ReadPlan::tile_row(const Tile& tile) const {
  const TensorPlan& t = tensors[tile.move.tensor];
  return params[t.param].param->pieces[t.piece].offset + tile.move.first_row;
}

Weight ReadPlan::tile_weight(const Tile& tile, std::byte* memory) const {
  return tile_view(params[tensors[tile.move.tensor].param], tile.move.rows, memory);
}

uint64_t ReadPlan::storage_bytes() const {
  return std::accumulate(units.begin(), units.end(), uint64_t{0},
                         [](uint64_t sum, const UnitPlan& u) { return sum + u.storage_bytes; });
}

uint64_t ReadPlan::read_bytes() const {
  return std::accumulate(spans.begin(), spans.end(), uint64_t{0},
                         [](uint64_t sum, const Span& s) { return sum + s.length; });
}

uint64_t ReadPlan::needed_bytes(const TensorPlan& t) const {
  const Cut& cut = params[t.param].param->pieces[t.piece].cut;
  return static_cast<uint64_t>(cut.rows) * row_bytes(t.stored->dtype, cut.cols);
}

uint64_t ReadPlan::bytes_per_token() const {
  uint64_t sum = 0;
  for (const ParamPlan& p : params) {
    if (!p.only_looked_up()) sum += p.bytes;
  }
  return sum;
}

Weight ReadPlan::weight(const ParamPlan& p, std::byte* unit_storage) const {
  return weight_in(p.format, p.param->rows, p.param->cols, unit_storage + p.offset);
}

}  // namespace sluice
