#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

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
    if (piece.view.transposed && plan.params[t.param].streamed()) {
      fail(ErrorKind::no_fit,
           "{} cannot be streamed from disk, as it is stored with its dimensions exchanged: leave "
           "it "
           "in memory",
           piece.source);
    }
    t.group =
        quantizes(quantize, *binding.params[t.param]) ? quantize.scheme.group : ScaleGroup::none;
    plan.tensors.push_back(t);
  }
  plan.ignored = binding.ignored;
  plan.kv_scales = binding.kv_scales;
  return plan;
}

namespace {

// The stored matrix, or vector, that a piece is a view of.
struct StoredMatrix {
  uint64_t begin = 0;  // file offsets
  uint64_t end = 0;
  uint64_t row_bytes = 0;
};

StoredMatrix matrix_of(const io::StoredTensor& stored, const Piece& piece) {
  StoredMatrix m;
  uint64_t bytes = stored.bytes;
  if (piece.view.index) bytes /= static_cast<uint64_t>(stored.shape[0]);
  m.begin = stored.offset + bytes * static_cast<uint64_t>(piece.view.index.value_or(0));
  m.end = m.begin + bytes;
  const int64_t cols = piece.vector            ? 1
                       : piece.view.transposed ? stored.shape[stored.shape.size() - 1]
                                               : piece.cols;
  m.row_bytes = sluice::row_bytes(stored.dtype, cols);
  return m;
}

// Columns that a part of a transposed matrix has at least: whole cells of any type, and enough of
// them for an encoder.
constexpr int64_t kFewestColumns = 32;

}  // namespace

RowsInFile rows_in_file(const ReadPlan& plan, const TensorPlan& t) {
  const ParamPlan& p = plan.params[t.param];
  const Piece& piece = p.param->pieces[t.piece];
  const StoredMatrix stored = matrix_of(*t.stored, piece);
  const DType dtype = t.stored->dtype;
  const auto first =
      static_cast<uint64_t>(piece.stored_output(piece.vector ? piece.cut.col : piece.cut.row));
  RowsInFile rows{.begin = stored.begin + first * stored.row_bytes,
                  .row_bytes = stored.row_bytes,
                  .rows = piece.cut.rows,
                  .end = stored.end};
  if (piece.view.transposed) {
    rows.begin = stored.begin + static_cast<uint64_t>(piece.cut.col) * stored.row_bytes;
    rows.rows = piece.cut.cols;
    rows.group = t.group == ScaleGroup::block ? kScaleBlock : kFewestColumns;
    rows.skip = row_bytes(dtype, static_cast<int64_t>(first));
    return rows;
  }
  // What is multiplied comes in whole panels, in whatever layout: tiles begin where panels do.
  rows.group = p.param->layout == WeightLayout::packed ? kPanelRows : 1;
  if (t.group == ScaleGroup::block) rows.group = kScaleBlock;
  const bool in_runs = piece.cut.rows > piece.view.group;
  if (piece.vector) {  // one row: read just the part
    auto last = static_cast<uint64_t>(piece.stored_output(piece.cut.col + piece.cut.cols - 1));
    rows.row_bytes = row_bytes(dtype, static_cast<int64_t>(last + 1 - first));
    rows.rows = rows.group = 1;
    return rows;
  }
  rows.skip = row_bytes(dtype, piece.cut.col);
  if (!in_runs) return rows;
  // From the first output of a period on, if runs do not reach beyond it.
  const View& view = piece.view;
  const int64_t before =
      view.first % view.stride + view.group <= view.stride ? view.first % view.stride : 0;
  rows.begin -= static_cast<uint64_t>(before) * stored.row_bytes;
  rows.skip += static_cast<uint64_t>(before) * stored.row_bytes;
  rows.row_bytes = stored.row_bytes * static_cast<uint64_t>(view.stride);
  rows.rows = piece.cut.rows / view.group;
  rows.group /= std::gcd(rows.group, view.group);
  rows.piece_rows = view.group;
  return rows;
}

namespace {

// What a tile is read as: where whole row groups lie in each run, only these.
RowsInFile rows_in_sweep(const ReadPlan& plan, const TensorPlan& t) {
  RowsInFile rows = rows_in_file(plan, t);
  const Piece& piece = plan.params[t.param].param->pieces[t.piece];
  if (rows.piece_rows == 1 || rows.group > 1) return rows;
  const StoredMatrix stored = matrix_of(*t.stored, piece);
  const uint64_t skip = row_bytes(t.stored->dtype, piece.cut.col);
  return {.begin = stored.begin,
          .row_bytes = stored.row_bytes,
          .rows = piece.view.group,
          .group = t.group == ScaleGroup::block ? kScaleBlock : kPanelRows,
          .skip = skip,
          .end = stored.end};
}

uint64_t slot_bytes_for(const ReadPlan& plan, const Staging& staging) {
  uint64_t slot = staging.slot_bytes;
  for (const TensorPlan& t : plan.tensors) {
    RowsInFile rows = rows_in_file(plan, t);
    uint64_t together = rows.bytes(0, std::min(rows.group, rows.rows));
    slot = std::max(slot, round_up(together + kAlignmentSlack, 4096));
  }
  return slot;
}

// Whether pieces are in the same bytes, and what has to be done with them is alike: they are read
// together.
bool share_reads(const ReadPlan& plan, const TensorPlan& a, const TensorPlan& b) {
  if (a.stored != b.stored || a.group != b.group) return false;
  const ParamPlan &p = plan.params[a.param], &q = plan.params[b.param];
  if (p.unit != q.unit || p.streamed() != q.streamed()) return false;
  const RowsInFile x = rows_in_file(plan, a), y = rows_in_file(plan, b);
  return x.begin == y.begin && x.rows == y.rows && x.row_bytes == y.row_bytes;
}

// Scales of rows cannot be found in one pass over a transposed matrix either.
bool is_measured(const ReadPlan& plan, const TensorPlan& t) {
  const Piece& piece = plan.params[t.param].param->pieces[t.piece];
  return t.group == ScaleGroup::tensor || (t.group == ScaleGroup::row && piece.view.transposed);
}

// Appends the reads of tensors: as many whole row groups a span as a slot holds. Small tensors that
// follow one another in the file share a span.
class SpanWriter {
 public:
  SpanWriter(ReadPlan& plan, uint64_t most_bytes, uint64_t ring_slots)
      : plan_(plan), most_(most_bytes), ring_slots_(ring_slots) {}

  // For the load, of tensors that share reads. Of what is streamed and measured, the largest values
  // are found here once and for all.
  void append(std::span<const uint32_t> tensors) {
    const TensorPlan& first = plan_.tensors[tensors.front()];
    bool streamed = plan_.params[first.param].streamed();
    if (!is_measured(plan_, first)) {
      if (!streamed) append_spans(tensors, false, true);
      return;
    }
    auto spans =
        static_cast<uint64_t>(ceil_div(rows_of(tensors).rows, rows_per_span(rows_of(tensors))));
    bool read_twice = streamed || spans > ring_slots_;
    take_area(tensors);
    for (uint32_t t : tensors) {
      plan_.tensors[t].measure_spans = static_cast<uint32_t>(spans);
      plan_.tensors[t].read_twice = read_twice;
    }
    append_spans(tensors, true, !read_twice);
    if (read_twice && !streamed) append_spans(tensors, false, true);
  }

  void append_to_sweep(uint32_t tensor) {
    const TensorPlan& t = plan_.tensors[tensor];
    const ParamPlan& param = plan_.params[t.param];
    const RowsInFile rows = rows_in_sweep(plan_, t);
    const int64_t step = rows_per_span(rows), all = param.param->pieces[t.piece].cut.rows;
    TiledTensor tiled{
        .tensor = tensor, .first_tile = plan_.sweep_tiles(), .tile_rows = step * rows.piece_rows};
    tiled.run_rows = rows.rows * rows.piece_rows;
    tiled.run_tiles = static_cast<uint32_t>(ceil_div(rows.rows, step));
    tiled.tiles = tiled.run_tiles * static_cast<uint32_t>(all / tiled.run_rows);
    plan_.sweep.push_back(tiled);
    plan_.tile_bytes = std::max(plan_.tile_bytes, tile_bytes(param, tiled.tile_rows));
  }

  // Once all is appended: in how many spans tensors can be at once, and one more of which some are
  // still to come.
  void set_areas() {
    plan_.row_amax.areas =
        std::min<uint64_t>(areas_wanted_, std::min<uint64_t>(ring_slots_, plan_.spans.size()) + 1);
  }

 private:
  void take_area(std::span<const uint32_t> tensors) {
    uint64_t bytes = 0;
    for (uint32_t t : tensors) {
      TensorPlan& tensor = plan_.tensors[t];
      const Piece& piece = plan_.params[tensor.param].param->pieces[tensor.piece];
      if (!piece.view.transposed) return;
      tensor.amax_offset = bytes;
      bytes += round_up(static_cast<uint64_t>(piece.cut.rows) * sizeof(float), kCellBytes);
    }
    ++areas_wanted_;
    plan_.row_amax.area_bytes = std::max(plan_.row_amax.area_bytes, bytes);
  }

  // Spans of one tensor are about equally long: a short one costs the disk as much as a long one.
  int64_t rows_per_span(const RowsInFile& rows) const {
    int64_t groups = ceil_div(rows.rows, rows.group);
    auto fit = std::max<int64_t>(1, static_cast<int64_t>(most_ / rows.row_bytes) / rows.group);
    return ceil_div(groups, ceil_div(groups, fit)) * rows.group;
  }

  // Of tensors that share reads: groups are powers of two.
  RowsInFile rows_of(std::span<const uint32_t> tensors) const {
    RowsInFile rows = rows_in_file(plan_, plan_.tensors[tensors.front()]);
    for (uint32_t t : tensors.subspan(1))
      rows.group = std::max(rows.group, rows_in_file(plan_, plan_.tensors[t]).group);
    return rows;
  }

  void append_spans(std::span<const uint32_t> tensors, bool measure, bool encode) {
    const TensorPlan& t = plan_.tensors[tensors.front()];
    const bool streamed = plan_.params[t.param].streamed();
    RowsInFile rows = rows_of(tensors);
    int64_t step = rows_per_span(rows);
    uint32_t unit = plan_.params[t.param].unit;
    for (int64_t row = 0; row < rows.rows; row += step) {
      int64_t count = std::min(step, rows.rows - row);
      uint64_t begin = rows.offset(row), length = rows.bytes(row, count);
      bool whole = row == 0 && count == rows.rows && t.measure_spans == 0;
      Span* span = whole ? joinable(t.stored->file, unit, begin, length) : nullptr;
      if (span == nullptr) {
        auto first_move = static_cast<uint32_t>(plan_.moves.size());
        plan_.spans.push_back({t.stored->file, begin, 0, unit, first_move, 0, measure, encode});
        span = &plan_.spans.back();
        last_joins_ = whole;
      }
      for (uint32_t tensor : tensors) {
        const RowsInFile own =
            tensors.size() == 1 ? rows : rows_in_file(plan_, plan_.tensors[tensor]);
        plan_.moves.push_back({tensor, row * own.piece_rows, count * own.piece_rows,
                               begin - span->offset + own.skip});
      }
      span->moves += static_cast<uint32_t>(tensors.size());
      span->length = begin + length - span->offset;
      if (!streamed) plan_.units[unit].read_bytes += length;
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
  uint64_t areas_wanted_ = 0;
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
    return std::tuple(plan.tensors[t].stored->file, rows_in_file(plan, plan.tensors[t]).begin, t);
  });
  uint64_t slots = std::max(kFewestSlots, staging.ring_bytes / plan.slot_bytes);
  SpanWriter writer(plan, plan.slot_bytes - kAlignmentSlack, slots);
  for (auto at = order.begin(); at != order.end();) {
    const TensorPlan& first = plan.tensors[*at];
    auto end = std::find_if(at + 1, order.end(),
                            [&](uint32_t t) { return !share_reads(plan, first, plan.tensors[t]); });
    if (first.stored->bytes > 0) writer.append({at, end});
    at = end;
  }
  writer.set_areas();
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
  const Piece& piece = params[tensor.param].param->pieces[tensor.piece];
  const RowsInFile rows = rows_in_sweep(*this, tensor);
  const int64_t first = tiled.first_row(index);
  const int64_t count = std::min(tiled.tile_rows, tiled.run_rows - first % tiled.run_rows);
  const bool one_run = tiled.run_rows == piece.cut.rows;
  const int64_t in_file =
      one_run ? first / rows.piece_rows : piece.stored_output(piece.cut.row + first);
  return {tensor.stored->file, rows.offset(in_file), rows.bytes(in_file, count / rows.piece_rows),
          params[tensor.param].unit, Move{tiled.tensor, first, count, rows.skip}};
}

uint64_t ReadPlan::tiles_bytes(const TiledTensor& tiled) const {
  const RowsInFile rows = rows_in_sweep(*this, tensors[tiled.tensor]);
  return tiled.tiles / tiled.run_tiles * rows.bytes();
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
