#include "src/plan/lay_out.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/bind.h"
#include "src/plan/rows_in_file.h"

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
WeightFormat with_layout(const Param& param, const QuantizeRequest& quantize, WeightFormat format) {
  if (param.layout == WeightLayout::packed) return with_layout(quantize.matrix_layout, format);
  format.layout = WeightLayout::rows;
  return format;
}

// Vectors are never in groups.
QuantScheme applied_scheme(const Param& param, const QuantizeRequest& quantize) {
  const QuantScheme& scheme = scheme_of(quantize, param, param.pieces.front());
  const bool in_groups = scheme.grouped.scales == ScaleKind::grouped;
  return param.pieces.front().vector && in_groups ? *find_quant_scheme("none") : scheme;
}

WeightFormat format_of(const Param& param, DType stored, const QuantScheme& scheme,
                       const QuantizeRequest& quantize) {
  if (scheme.group != ScaleGroup::none) {
    if (param.cols > scheme.most_cols)
      fail(ErrorKind::refused,
           "{} has {} columns, and {} can sum {} of them at most: choose another --quantization",
           param.path, param.cols, scheme.name, scheme.most_cols);
    WeightFormat format = with_layout(param, quantize, scheme.format(stored, WeightLayout::packed));
    format.whole_blocks = format.scales == ScaleKind::per_block &&
                          std::ranges::all_of(param.pieces, [](const Piece& piece) {
                            return piece.offset % kScaleBlock == 0;
                          });
    return format;
  }
  if (param.pieces.front().vector)
    return {DType::f32, WeightLayout::rows, ScaleKind::none};  // small, and read by every kernel
  return with_layout(param, quantize, {stored, WeightLayout::packed, ScaleKind::none});
}

// Returns whether the pieces of a parameter can become one weight.
bool are_alike(const Param& param, std::span<const TensorPlan> pieces,
               const QuantizeRequest& quantize) {
  const std::optional<WeightFormat>& stored = pieces.front().matrix->kept;
  for (const TensorPlan& t : pieces.subspan(1)) {
    // Each has an order of columns of its own.
    if (t.matrix->kept != stored || (stored && stored->ordered)) return false;
    if (t.matrix->tables != pieces.front().matrix->tables) return false;
  }
  if (quantize.rules.empty()) return true;
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
           quantize.name(), rule.pattern.text());
  }
}

// Refuses a wish for inputs of 8 bits that no layer can fulfil.
void check_rounded_inputs(const ReadPlan& plan, const QuantizeRequest& quantize) {
  const auto asks = [](const QuantScheme& s) { return s == rounded_inputs_scheme(); };
  if (!asks(quantize.scheme) && std::ranges::none_of(quantize.rules, asks, &SchemeRule::scheme))
    return;
  const bool fulfilled = std::ranges::any_of(plan.params, [&](const ParamPlan& p) {
    return asks(scheme_of(quantize, *p.param, p.param->pieces.front())) && is_grouped(p.format) &&
           has_integer_codes(p.format);
  });
  if (!fulfilled)
    fail(ErrorKind::usage,
         "--quantization {}: no weights that {} is for are stored in groups of integers (as GGUF, "
         "GPTQ, AWQ have them): choose int8, which rounds weights and their inputs",
         quantize.name(), rounded_inputs_scheme().name);
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

// Refuses a rank's part that ends within a group.
void check_cut(const StoredMatrix& matrix, const WeightFormat& format, const Piece& piece) {
  const Cut& cut = piece.cut;
  const bool in_groups =
      !matrix.kept && format.scales == ScaleKind::grouped && format.scale_cols < piece.cols;
  const int64_t whole = in_groups ? format.scale_cols : matrix.whole_inputs;
  if (piece.vector || cut.cols == piece.cols) return;
  const bool ordered = matrix.kept && matrix.kept->ordered;
  if (ordered)
    fail(ErrorKind::refused,
         "{} cannot be divided among ranks by its inputs, as its groups have inputs from all over "
         "it (activation order); run it with --pipeline-parallel-size, which divides the layers",
         piece.source);
  if (cut.col % whole != 0 || cut.cols % whole != 0)
    fail(ErrorKind::refused,
         "{} cannot be divided among ranks by its inputs, as a rank's part is not whole groups of "
         "{}; run it with --pipeline-parallel-size, which divides the layers",
         piece.source, whole);
}

void note_group(ReadPlan& plan, const TensorPlan& t) {
  const bool by_spill =
      t.source == 0 && !t.transposed && !t.plane().input_major() && plan.is_packed_in_spill(t);
  if (t.origin == Origin::spill || by_spill) {  // whole panels
    const auto rows = static_cast<uint64_t>(t.rows.group);
    const TileCost cost = tile_cost(plan, t, t.rows);
    plan.widest_group = std::max(plan.widest_group, rows * cost.row + cost.fixed);
    return;
  }
  plan.widest_group =
      std::max(plan.widest_group, t.rows.bytes(0, std::min(t.rows.group, t.rows.rows)));
  const ParamPlan& p = plan.params[t.param];
  if (t.orders_columns())  // a device copies a row in as much memory
    plan.widest_group =
        std::max(plan.widest_group,
                 plane_bytes(p.format, Plane::codes, kPanelRows, p.param->cols) / kPanelRows);
}

// Returns whether blocks of rows that have the same scales begin at multiples of kScaleBlock.
bool has_whole_blocks(const Param& param, const WeightFormat& format) {
  if (format.scales != ScaleKind::per_block) return false;
  return std::ranges::all_of(param.pieces, [](const Piece& piece) {
    return piece.offset % kScaleBlock == 0 && piece.runs() == 1 &&
           piece.stored_output(piece.cut.row) % kScaleBlock == 0;
  });
}

// Decides where a matrix is read from, and finds its rows there. Returns whether it is input-major.
bool place_rows(const ReadPlan& plan, const ParamPlan& p, TensorPlan& t) {
  const Piece& piece = p.param->pieces[t.piece];
  t.transposed = piece.view.transposed && !t.matrix->kept;
  const bool is_input_major = t.transposed || t.plane().input_major();
  const bool is_looked_up = p.table != Table::none || p.param->layout != WeightLayout::packed;
  if (is_input_major && plan.origin == Origin::spill && !is_looked_up) {
    t.origin = Origin::spill;
    t.transposed = false;
    t.rows = rows_in_spill(*p.param, t, p.format);
    return true;
  }
  t.rows = rows_in_file(*p.param, t);
  if (t.matrix->kept && p.format.whole_blocks) t.rows.group = kScaleBlock;
  if (t.transposed && (t.group == ScaleGroup::columns || t.group == ScaleGroup::nested))
    t.rows.group = std::max(t.rows.group, p.format.scale_cols);
  return is_input_major;
}

// Adds a parameter with its pieces.
void add_param(ReadPlan& plan, Param& param, uint32_t unit, std::span<TensorPlan> pieces,
               const QuantizeRequest& quantize) {
  const std::optional<WeightFormat>& stored = pieces.front().matrix->kept;
  const QuantScheme scheme = stored ? *find_quant_scheme("none") : applied_scheme(param, quantize);
  ParamPlan p;
  p.param = &param;
  p.unit = unit;
  p.table = table_of(param);
  if (stored) {
    refuse_rules(param, quantize);
    p.format = with_layout(param, quantize, *stored);
    p.format.whole_blocks = has_whole_blocks(param, p.format);
    p.format.quantized_input =
        scheme_of(quantize, param, param.pieces.front()) == rounded_inputs_scheme() &&
        can_round_inputs(quantize.matrix_layout, p.format);
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
    check_cut(*t.matrix, p.format, param.pieces[i]);
    plan.order_bytes += t.matrix->order.size() * sizeof(int32_t);
    const bool is_input_major = place_rows(plan, p, t);
    const bool is_table = p.table != Table::none && t.matrix->planes.size() > 1;
    p.transposed = p.transposed || is_table || (is_input_major && t.origin == Origin::checkpoint);
  }
  plan.params.push_back(p);
  for (const TensorPlan& t : pieces) note_group(plan, t);
}

// Adds the other planes of stored matrices.
void add_planes(ReadPlan& plan) {
  for (size_t i = 0, codes = plan.tensors.size(); i < codes; ++i) {
    const TensorPlan first = plan.tensors[i];
    const auto others = static_cast<uint32_t>(first.matrix->planes.size() - 1);
    if (others == 0 || first.origin == Origin::spill) continue;
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

// Numbers that the sizes of a tensor's tiles follow from, however long these are, and how often
// they are read.
struct TileSizes {
  WeightFormat format;
  double share = 1;
  int64_t cols = 0;
  int64_t rows = 0, group = 0, piece_rows = 0;  // of a run
  int64_t all_rows = 0;                         // of all runs
  uint64_t bytes = 0, other_bytes = 0;          // of a run, and of the other planes
  uint64_t row_bytes = 0, cost_of_row = 0, cost = 0;
  bool operator==(const TileSizes&) const = default;
};

TileSizes tile_sizes(const ReadPlan& plan, const TensorPlan& t) {
  const ParamPlan& p = plan.params[t.param];
  const RowsInFile rows = rows_in_sweep(plan, t);
  const TileCost cost = tile_cost(plan, t, rows);
  TileSizes sizes{.format = p.format,
                  .share = p.param->share,
                  .cols = p.param->cols,
                  .rows = rows.rows,
                  .group = rows.group,
                  .piece_rows = rows.piece_rows,
                  .all_rows = t.rows.rows * t.rows.piece_rows,
                  .bytes = rows.bytes(),
                  .row_bytes = rows.row_bytes,
                  .cost_of_row = cost.row,
                  .cost = cost.fixed};
  for (uint32_t k = 0; k < t.others; ++k)
    sizes.other_bytes += plan.tensors[t.first_other + k].rows.bytes();
  return sizes;
}

// Finds tensors whose tiles are alike. Kinds are few, and those of an expert are those of the one
// before.
void find_alike(ReadPlan& plan) {
  std::vector<std::pair<TileSizes, uint32_t>> kinds;
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    TensorPlan& t = plan.tensors[i];
    t.alike = i;
    if (t.source > 0 || t.stored->bytes == 0) continue;
    const TileSizes sizes = tile_sizes(plan, t);
    const auto kind =
        std::ranges::find(kinds.rbegin(), kinds.rend(), sizes, &decltype(kinds)::value_type::first);
    if (kind != kinds.rend()) t.alike = kind->second;
    if (kind == kinds.rend()) kinds.emplace_back(sizes, i);
  }
}

// Sorts the tensors as they lie on disk, and places all on the device.
void finish(ReadPlan& plan) {
  plan.params.shrink_to_fit();
  plan.tensors.shrink_to_fit();
  plan.disk_order.resize(plan.tensors.size());
  std::iota(plan.disk_order.begin(), plan.disk_order.end(), 0u);
  std::ranges::sort(plan.disk_order, {}, [&](uint32_t i) {
    const TensorPlan& t = plan.tensors[i];
    return std::tuple(t.origin, t.origin == Origin::spill ? 0 : t.stored->file, t.rows.begin, i);
  });
  lay_out_row_amax(plan);
  find_alike(plan);
  plan.bands = read_bands(plan);
  set_placement(plan, {});
}

}  // namespace

ReadPlan lay_out(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 Origin origin) {
  Binding binding = bind_tensors(model, index);
  ReadPlan plan;
  plan.rank = model.root->rank();
  plan.own_files = index.ranks() > 1;
  for (Module* unit : model.root->units()) plan.units.push_back({unit->path(), 0, 0, 0});
  const bool has_all = model.root->stage().count() == 1;
  if (has_all) check_rules(binding, quantize);
  plan.params.reserve(binding.params.size());
  plan.tensors = std::move(binding.tensors);
  plan.origin = origin;
  plan.matrix_layout = quantize.matrix_layout;
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
  if (has_all) check_rounded_inputs(plan, quantize);
  if (std::ranges::any_of(plan.params, [](const ParamPlan& p) { return is_grouped(p.format); }))
    model.root->use_grouped_weights();
  add_planes(plan);
  plan.ignored = std::move(binding.ignored);
  plan.kv_scales = std::move(binding.kv_scales);
  finish(plan);
  return plan;
}

int64_t row_step(const ReadPlan& plan, uint32_t tensor) {
  const TensorPlan& t = plan.tensors[tensor];
  const ParamPlan& p = plan.params[t.param];
  const Piece& piece = p.param->pieces[t.piece];
  const bool in_blocks = t.group == ScaleGroup::block || p.format.whole_blocks;
  const int64_t step = in_blocks ? kScaleBlock : kPanelRows;
  return piece.runs() > 1 ? std::lcm(step, piece.view.group) : step;
}

ReadPlan lay_out_part(const ReadPlan& plan, uint32_t tensor, int64_t first, int64_t rows,
                      Param& part) {
  const TensorPlan& of = plan.tensors[tensor];
  const ParamPlan& whole = plan.params[of.param];
  Piece piece = whole.param->pieces[of.piece];
  piece.cut.row += first;
  piece.cut.rows = rows;
  piece.offset = 0;
  part = {.path = whole.param->path,
          .role = whole.param->role,
          .layout = whole.param->layout,
          .rows = static_cast<int64_t>(round_up(rows, kPanelRows)),
          .cols = whole.param->cols};
  part.pieces.push_back(std::move(piece));
  ReadPlan result;
  result.units.push_back({part.path, 0, 0, 0});
  ParamPlan p{.param = &part, .format = whole.format};
  p.bytes = weight_bytes(p.format, part.rows, part.cols);
  p.storage = storage_bytes(p.format, part.rows, part.cols);
  TensorPlan t{
      .stored = of.stored, .group = of.group, .matrix = of.matrix, .matrices = of.matrices};
  t.amax_known = of.amax_known;
  place_rows(result, p, t);
  result.params.push_back(p);
  note_group(result, t);
  result.tensors.push_back(std::move(t));
  add_planes(result);
  finish(result);
  return result;
}

Shape matrix_shape(const io::StoredTensor& stored) {
  const Shape& shape = stored.shape;
  check(shape.size() >= 2 && !(stored.column_major && shape.size() > 2), "a matrix");
  if (stored.column_major) return {shape[1], shape[0]};
  int64_t outputs = 1;
  for (int d = 0; d + 1 < shape.size(); ++d) outputs *= shape[d];
  return {outputs, shape[shape.size() - 1]};
}

ReadPlan lay_out_matrix(const io::StoredTensor& stored, const QuantizeRequest& quantize,
                        Param& param) {
  const Shape shape = matrix_shape(stored);
  param = make_matrix(stored.name, ParamRole::linear, WeightLayout::rows,
                      {{.source = stored.name,
                        .rows = shape[0],
                        .cols = shape[1],
                        .view = {.transposed = stored.column_major}}},
                      {});
  auto matrix = std::make_shared<StoredMatrix>();
  matrix->planes.emplace_back();
  matrix->outputs = param.rows;
  ReadPlan result;
  result.units.push_back({param.path, 0, 0, 0});
  result.tensors.push_back({.stored = &stored, .matrix = std::move(matrix)});
  add_param(result, param, 0, result.tensors, quantize);
  finish(result);
  return result;
}

namespace {

// Lists the experts that the placement has a cache for.
void list_experts(ReadPlan& plan) {
  plan.experts.clear();
  plan.expert_slot_bytes = 0;
  int64_t last = -1;
  for (uint32_t i = 0; i < plan.params.size(); ++i) {
    const ParamPlan& p = plan.params[i];
    if (p.tier != Tier::cached) continue;
    if (plan.experts.empty() || plan.experts.back().unit != p.unit || p.param->expert != last)
      plan.experts.push_back({.first_param = i, .end_param = i, .unit = p.unit});
    last = p.param->expert;
    CachedExpert& expert = plan.experts.back();
    expert.end_param = i + 1;
    expert.bytes += tile_bytes(p, p.param->rows);
    plan.expert_slot_bytes = std::max(plan.expert_slot_bytes, expert.bytes);
  }
  plan.experts.shrink_to_fit();
}

void refuse_transposed(const ParamPlan& p, Tier tier) {
  if (!p.transposed || (tier != Tier::disk && tier != Tier::cached)) return;
  fail(ErrorKind::no_fit,
       "{} cannot be streamed from the checkpoint, which has its dimensions exchanged: leave it in "
       "memory{}",
       p.param->path,
       p.table == Table::none ? ", or give a --spill-dir that has room for a packed copy" : "");
}

}  // namespace

void set_placement(ReadPlan& plan, const Placement& placement) {
  check(placement.empty() || placement.size() == plan.params.size(), "one tier a parameter");
  for (size_t i = 0; i < placement.size(); ++i) refuse_transposed(plan.params[i], placement[i]);
  for (UnitPlan& unit : plan.units) unit.storage_bytes = unit.host_bytes = unit.read_bytes = 0;
  plan.expert_slots = 0;
  bool caches_others = false;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    ParamPlan& p = plan.params[i];
    const Tier tier = placement.empty() ? Tier::device : placement[i];
    caches_others = caches_others || (p.tier == Tier::cached) != (tier == Tier::cached);
    p.tier = tier;
    p.offset = 0;
    if (p.streamed()) continue;
    UnitPlan& unit = plan.units[p.unit];
    uint64_t& storage = p.tier == Tier::host ? unit.host_bytes : unit.storage_bytes;
    p.offset = storage;
    storage += p.kept_storage();
  }
  if (caches_others) list_experts(plan);
}

}  // namespace sluice
