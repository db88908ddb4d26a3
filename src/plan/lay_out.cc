// The first part of compile(): chooses each parameter's format, and finds its tensors' rows.
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

// The type that holds what all pieces of a parameter are kept in: where they differ, float32.
DType common_dtype(std::span<const TensorPlan> pieces) {
  std::optional<DType> common;
  for (const TensorPlan& t : pieces) {
    DType kept = kept_dtype(t.stored->dtype);
    common = common.value_or(kept) == kept ? kept : DType::f32;
  }
  return *common;
}

// Matrices that are multiplied have the device's layout; tables that are only looked up have plain
// rows.
WeightLayout layout_of(const Param& param, const QuantizeRequest& quantize) {
  return param.layout == WeightLayout::packed ? quantize.matrix_layout : WeightLayout::rows;
}

WeightFormat format_of(const Param& param, DType stored, const QuantScheme& scheme,
                       const QuantizeRequest& quantize) {
  if (scheme.group != ScaleGroup::none) {
    if (param.cols > scheme.most_cols)
      fail(ErrorKind::refused,
           "{} has {} columns, and {} can sum {} of them at most: choose another --quantization",
           param.path, param.cols, scheme.name, scheme.most_cols);
    WeightFormat format = scheme.format(stored, layout_of(param, quantize));
    format.whole_blocks = format.scales == ScaleKind::per_block &&
                          std::ranges::all_of(param.pieces, [](const Piece& piece) {
                            return piece.offset % kScaleBlock == 0;
                          });
    return format;
  }
  if (param.pieces.front().vector)
    return {DType::f32, WeightLayout::rows, ScaleKind::none};  // small, and read by every kernel
  return {stored, layout_of(param, quantize), ScaleKind::none};
}

// The stored matrix, or vector, that a piece is a view of.
struct MatrixInFile {
  uint64_t begin = 0;  // file offsets
  uint64_t end = 0;
  uint64_t row_bytes = 0;
};

MatrixInFile matrix_of(const TensorPlan& t, const Piece& piece) {
  const io::StoredTensor& stored = *t.stored;
  MatrixInFile m;
  uint64_t bytes = stored.bytes;
  if (piece.view.index) bytes /= static_cast<uint64_t>(stored.shape[0]);
  m.begin = t.matrix_begin(piece);
  m.end = m.begin + bytes;
  if (t.matrix->kept) {
    m.row_bytes = stored_row_bytes(t, piece);
    return m;
  }
  const int64_t cols = piece.vector            ? 1
                       : piece.view.transposed ? stored.shape[stored.shape.size() - 1]
                                               : piece.cols;
  m.row_bytes = sluice::row_bytes(stored.dtype, cols);
  return m;
}

// Columns that a part of a transposed matrix has at least: whole cells of any type, and enough of
// them for an encoder.
constexpr int64_t kFewestColumns = 32;

// Bytes of a row before the columns that this rank has.
uint64_t skipped_bytes(const TensorPlan& t, const Piece& piece) {
  if (t.source > 0 || t.stored->dtype == DType::grouped_row) return 0;  // encoding skips them
  if (!t.matrix->kept) return row_bytes(t.stored->dtype, piece.cut.col);
  return stored_row_bytes(t, piece) * static_cast<uint64_t>(piece.cut.col) /
         static_cast<uint64_t>(piece.cols);
}

// The rows of the file that a rank needs, of a plane whose rows are inputs.
RowsInFile input_rows(const TensorPlan& t, const Piece& piece) {
  const StoredPlane& plane = t.plane();
  const int64_t rows = ceil_div(piece.cut.cols, plane.run_inputs) * plane.run_rows;
  const bool at_once = plane.plane == Plane::codes && t.matrix->kept->ordered;
  const uint64_t row_bytes = t.stored->bytes / static_cast<uint64_t>(t.stored->shape[0]);
  const int64_t first = piece.cut.col / plane.run_inputs * plane.run_rows;
  return {.begin = t.stored->offset + static_cast<uint64_t>(first) * row_bytes,
          .row_bytes = row_bytes,
          .rows = rows,
          .group = at_once ? rows : plane.run_rows,
          .end = t.stored->offset + t.stored->bytes};
}

// The rows of the file that have scales of several outputs each: few, which are read at once.
RowsInFile shared_rows(const TensorPlan& t, const Piece& piece) {
  const auto row = [&](int64_t at) { return t.plane().row_of(piece.stored_output(at)); };
  const int64_t first = row(piece.cut.row), end = row(piece.cut.row + piece.cut.rows - 1) + 1;
  const uint64_t row_bytes = stored_row_bytes(t, piece);
  return {.begin = t.matrix_begin(piece) + static_cast<uint64_t>(first) * row_bytes,
          .row_bytes = row_bytes,
          .rows = end - first,
          .group = end - first,
          .end = t.stored->offset + t.stored->bytes};
}

RowsInFile rows_in_file(const Param& param, const TensorPlan& t) {
  const Piece& piece = param.pieces[t.piece];
  if (t.plane().input_major()) return input_rows(t, piece);
  if (t.plane().row_outputs != 1) return shared_rows(t, piece);
  const MatrixInFile stored = matrix_of(t, piece);
  const DType dtype = t.stored->dtype;
  const auto first =
      static_cast<uint64_t>(piece.stored_output(piece.vector ? piece.cut.col : piece.cut.row));
  RowsInFile rows{.begin = stored.begin + first * stored.row_bytes,
                  .row_bytes = stored.row_bytes,
                  .rows = piece.cut.rows,
                  .end = stored.end};
  if (t.transposed) {
    rows.begin = stored.begin + static_cast<uint64_t>(piece.cut.col) * stored.row_bytes;
    rows.rows = piece.cut.cols;
    rows.group = t.group == ScaleGroup::block ? kScaleBlock : kFewestColumns;
    rows.skip = row_bytes(dtype, static_cast<int64_t>(first));
    return rows;
  }
  // Multiplied matrices come in whole panels, in whatever layout: tiles begin where panels do.
  rows.group = param.layout == WeightLayout::packed ? kPanelRows : 1;
  if (t.group == ScaleGroup::block) rows.group = kScaleBlock;
  const bool in_runs = piece.cut.rows > piece.view.group;
  if (piece.vector) {  // one row: read just the part
    auto last = static_cast<uint64_t>(piece.stored_output(piece.cut.col + piece.cut.cols - 1));
    rows.row_bytes = row_bytes(dtype, static_cast<int64_t>(last + 1 - first));
    rows.rows = rows.group = 1;
    return rows;
  }
  rows.skip = skipped_bytes(t, piece);
  if (!in_runs) return rows;
  // Reads from the first output of a period on, if runs do not reach beyond it.
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

// Returns whether the pieces of a parameter can become one weight.
bool are_alike(const Param& param, std::span<const TensorPlan> pieces,
               const QuantizeRequest& quantize) {
  const std::optional<WeightFormat>& stored = pieces.front().matrix->kept;
  for (const TensorPlan& t : pieces.subspan(1)) {
    // Each has an order of columns of its own.
    if (t.matrix->kept != stored || (stored && stored->ordered)) return false;
  }
  if (quantize.rules.empty() || stored) return true;
  const QuantScheme& first = scheme_of(quantize, param, param.pieces.front());
  return std::ranges::all_of(param.pieces, [&](const Piece& piece) {
    return scheme_of(quantize, param, piece).name == first.name;
  });
}

// A rule that fits nothing is one that was meant otherwise.
void check_rules(const Binding& binding, const QuantizeRequest& quantize) {
  for (const SchemeRule& rule : quantize.rules) {
    bool used = std::ranges::any_of(binding.params, [&](const Param* param) {
      return std::ranges::any_of(param->pieces,
                                 [&](const Piece& piece) { return fits(rule, *param, piece); });
    });
    if (!used)
      fail(ErrorKind::usage, "--quantization {}: no matrix of the model has a name like {}",
           quantize.name(), rule.pattern);
  }
}

// Refuses a rule for a weight that is quantized already.
void refuse_rules(const Param& param, const QuantizeRequest& quantize) {
  for (const Piece& piece : param.pieces) {
    for (const SchemeRule& rule : quantize.rules) {
      if (fits(rule, param, piece) && rule.scheme.group != ScaleGroup::none)
        fail(ErrorKind::refused, "--quantization {}: {} is quantized already, and stays as it is",
             quantize.name(), piece.source);
    }
  }
}

// Refuses a part of a matrix of whose panels some would have rows of two blocks of scales.
void check_panels(const StoredMatrix& matrix, const Piece& piece) {
  const auto shares = [](const StoredPlane& plane) { return plane.row_outputs > 1; };
  if (std::ranges::none_of(matrix.planes, shares)) return;
  const View& view = piece.view;
  const bool in_runs = piece.runs() > 1;
  if (piece.stored_output(piece.cut.row) % kPanelRows != 0 ||
      (in_runs && (view.group % kPanelRows != 0 || view.stride % kPanelRows != 0)))
    fail(ErrorKind::refused,
         "{} has a scale for each block of rows, and a part of it does not begin with a multiple "
         "of {} rows",
         piece.source, kPanelRows);
}

// Refuses a rank's part that ends within a group.
void check_cut(const StoredMatrix& matrix, const Piece& piece) {
  const Cut& cut = piece.cut;
  const int64_t whole = matrix.whole_inputs;
  if (piece.vector || cut.cols == piece.cols) return;
  const bool ordered = matrix.kept && matrix.kept->ordered;
  if (ordered || cut.col % whole != 0 || cut.cols % whole != 0)
    fail(ErrorKind::refused,
         "{} cannot be divided among ranks by its inputs, as a rank's part is not whole groups of "
         "{}",
         piece.source, whole);
}

void note_group(ReadPlan& plan, const TensorPlan& t) {
  plan.widest_group =
      std::max(plan.widest_group, t.rows.bytes(0, std::min(t.rows.group, t.rows.rows)));
}

// Returns whether blocks of rows that have the same scales begin at multiples of kScaleBlock.
bool has_whole_blocks(const Param& param, const WeightFormat& format) {
  if (format.scales != ScaleKind::per_block) return false;
  return std::ranges::all_of(param.pieces, [](const Piece& piece) {
    return piece.offset % kScaleBlock == 0 && piece.runs() == 1 &&
           piece.stored_output(piece.cut.row) % kScaleBlock == 0;
  });
}

// Adds a parameter with its pieces.
void add_param(ReadPlan& plan, Param& param, uint32_t unit, std::span<TensorPlan> pieces,
               const QuantizeRequest& quantize) {
  const std::optional<WeightFormat>& stored = pieces.front().matrix->kept;
  const QuantScheme scheme =
      stored ? *find_quant_scheme("none") : scheme_of(quantize, param, param.pieces.front());
  ParamPlan p;
  p.param = &param;
  p.unit = unit;
  p.table = table_of(param);
  if (stored) {
    refuse_rules(param, quantize);
    p.format = *stored;
    p.format.layout = layout_of(param, quantize);
    p.format.whole_blocks = has_whole_blocks(param, p.format);
  } else {
    const DType kept = param.role == ParamRole::router ? DType::f32
                       : quantize.to_bf16              ? DType::bf16
                                                       : common_dtype(pieces);
    p.format = format_of(param, kept, scheme, quantize);
  }
  p.bytes = weight_bytes(p.format, param.rows, param.cols);
  p.storage = storage_bytes(p.format, param.rows, param.cols);
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    TensorPlan& t = pieces[i];
    t.param = static_cast<uint32_t>(plan.params.size());
    t.piece = i;
    t.group = scheme.group;
    t.transposed = param.pieces[i].view.transposed && !stored;
    check_cut(*t.matrix, param.pieces[i]);
    check_panels(*t.matrix, param.pieces[i]);
    t.rows = rows_in_file(param, t);
    if (stored && p.format.whole_blocks) t.rows.group = kScaleBlock;
    const bool is_table = p.table != Table::none && t.matrix->planes.size() > 1;
    p.transposed = p.transposed || t.transposed || t.plane().input_major() || is_table;
    note_group(plan, t);
  }
  plan.params.push_back(p);
}

// Adds the other planes of stored matrices.
void add_planes(ReadPlan& plan) {
  for (size_t i = 0, codes = plan.tensors.size(); i < codes; ++i) {
    const TensorPlan first = plan.tensors[i];
    const auto others = static_cast<uint32_t>(first.matrix->planes.size() - 1);
    if (others == 0) continue;
    const Param& param = *plan.params[first.param].param;
    plan.tensors[i].first_other = static_cast<uint32_t>(plan.tensors.size());
    plan.tensors[i].others = others;
    for (uint32_t source = 1; source <= others; ++source) {
      TensorPlan t = first;
      t.source = source;
      t.stored = t.plane().tensor;
      t.rows = rows_in_file(param, t);
      note_group(plan, t);
      plan.tensors.push_back(std::move(t));
    }
    if (first.plane().input_major()) continue;
    const RowsInFile rows = rows_in_sweep(plan, plan.tensors[i]);
    const TileCost cost = tile_cost(plan, plan.tensors[i], rows);
    const auto together = static_cast<uint64_t>(std::min(rows.group, rows.rows));
    plan.widest_group = std::max(plan.widest_group, together * cost.row + cost.fixed);
  }
}

// Areas for what is measured of rows: see RowAmax.
void lay_out_row_amax(ReadPlan& plan) {
  for (size_t at = 0; at < plan.disk_order.size();) {
    const size_t end = plan.end_of_shared(at);
    uint64_t bytes = 0;
    for (size_t i = at; i < end; ++i) {
      TensorPlan& t = plan.tensors[plan.disk_order[i]];
      if (!t.transposed || !t.is_measured()) continue;
      t.amax_offset = bytes;
      auto rows = static_cast<uint64_t>(plan.params[t.param].param->pieces[t.piece].cut.rows);
      bytes += round_up(rows * sizeof(float), kCellBytes);
    }
    plan.row_amax.area_bytes = std::max(plan.row_amax.area_bytes, bytes);
    plan.row_amax.users += bytes > 0;
    at = end;
  }
}

}  // namespace

ReadPlan lay_out(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize) {
  Binding binding = bind_tensors(model, index);
  ReadPlan plan;
  for (Module* unit : model.root->units()) plan.units.push_back({unit->path(), 0, 0, 0});
  check_rules(binding, quantize);
  plan.params.reserve(binding.params.size());
  plan.tensors = std::move(binding.tensors);
  std::span<TensorPlan> rest = plan.tensors;
  for (uint32_t i = 0; i < binding.params.size(); ++i) {
    Param& param = *binding.params[i];
    const std::span<TensorPlan> pieces = rest.first(param.pieces.size());
    rest = rest.subspan(pieces.size());
    if (are_alike(param, pieces, quantize)) {
      add_param(plan, param, binding.param_units[i], pieces, quantize);
      continue;
    }
    for (size_t p = 0; p < pieces.size(); ++p)
      add_param(plan, *split(param)[p], binding.param_units[i], pieces.subspan(p, 1), quantize);
  }
  add_planes(plan);
  plan.params.shrink_to_fit();
  plan.tensors.shrink_to_fit();
  plan.disk_order.resize(plan.tensors.size());
  std::iota(plan.disk_order.begin(), plan.disk_order.end(), 0u);
  std::ranges::sort(plan.disk_order, {}, [&](uint32_t t) {
    return std::tuple(plan.tensors[t].stored->file, plan.tensors[t].rows.begin, t);
  });
  lay_out_row_amax(plan);
  plan.ignored = std::move(binding.ignored);
  plan.kv_scales = std::move(binding.kv_scales);
  set_placement(plan, {});
  return plan;
}

void set_placement(ReadPlan& plan, const Placement& placement) {
  check(placement.empty() || placement.size() == plan.params.size(), "one tier a parameter");
  for (UnitPlan& unit : plan.units) unit.storage_bytes = unit.host_bytes = unit.read_bytes = 0;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    ParamPlan& p = plan.params[i];
    p.tier = placement.empty() ? Tier::device : placement[i];
    p.offset = 0;
    if (p.streamed() && p.transposed) {
      fail(
          ErrorKind::no_fit,
          "{} cannot be streamed from the checkpoint, which has its dimensions exchanged: leave it "
          "in memory, or give a --spill-dir for a copy by rows",
          p.param->path);
    }
    if (p.streamed()) continue;
    UnitPlan& unit = plan.units[p.unit];
    uint64_t& storage = p.tier == Tier::host ? unit.host_bytes : unit.storage_bytes;
    p.offset = storage;
    storage += p.storage;
  }
}

RowsInFile rows_in_sweep(const ReadPlan& plan, const TensorPlan& t) {
  if (t.rows.piece_rows == 1 || t.rows.group > 1) return t.rows;
  const Piece& piece = plan.params[t.param].param->pieces[t.piece];
  const MatrixInFile stored = matrix_of(t, piece);
  const uint64_t skip = skipped_bytes(t, piece);
  return {.begin = stored.begin,
          .row_bytes = stored.row_bytes,
          .rows = piece.view.group,
          .group = t.group == ScaleGroup::block ? kScaleBlock : kPanelRows,
          .skip = skip,
          .end = stored.end};
}

// Returns whether pieces are in the same bytes and are handled alike.
bool ReadPlan::share_reads(const TensorPlan& a, const TensorPlan& b) const {
  if (a.stored != b.stored || a.group != b.group) return false;
  const ParamPlan &p = params[a.param], &q = params[b.param];
  if (p.unit != q.unit || p.streamed() != q.streamed()) return false;
  return a.rows.begin == b.rows.begin && a.rows.rows == b.rows.rows &&
         a.rows.row_bytes == b.rows.row_bytes;
}

size_t ReadPlan::end_of_shared(size_t at) const {
  size_t end = at + 1;
  const TensorPlan& first = tensors[disk_order[at]];
  while (end < disk_order.size() && share_reads(first, tensors[disk_order[end]])) ++end;
  return end;
}

}  // namespace sluice
