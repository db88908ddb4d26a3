#include "src/plan/read_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quant/groups.h"
#include "src/base/units.h"
#include "src/plan/rows_in_file.h"

namespace sluice {

double used_share(const Param& param, int64_t tokens) {
  if (tokens == 1 || !param.is_routed()) return param.share;
  return 1 - std::pow(1 - param.share, static_cast<double>(tokens));
}

uint64_t tile_bytes(const ParamPlan& param, int64_t rows) {
  return storage_bytes(param.format, ceil_div(rows, kPanelRows) * kPanelRows, param.param->cols);
}

Weight tile_view(const ParamPlan& param, int64_t rows, std::byte* memory) {
  return weight_in(param.format, ceil_div(rows, kPanelRows) * kPanelRows, param.param->cols,
                   memory);
}

uint64_t host_tile_bytes(const ParamPlan& param, int64_t rows) {
  return storage_bytes(param.kept_format(), ceil_div(rows, kPanelRows) * kPanelRows,
                       param.param->cols);
}

Weight host_tile_view(const ParamPlan& param, int64_t rows, std::byte* memory) {
  return weight_in(param.kept_format(), ceil_div(rows, kPanelRows) * kPanelRows, param.param->cols,
                   memory);
}

WeightFormat ParamPlan::kept_format() const {
  WeightFormat kept = format;
  if (is_for_host()) kept.layout = WeightLayout::packed;
  return kept;
}

uint64_t ParamPlan::kept_bytes() const {
  return is_for_host() ? weight_bytes(kept_format(), param->rows, param->cols) : bytes;
}

uint64_t ParamPlan::kept_storage() const {
  return is_for_host() ? storage_bytes(kept_format(), param->rows, param->cols) : storage;
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
  const TensorPlan& codes = tensors[tiled.tensor];
  const RowsInFile rows = rows_in_sweep(*this, codes);
  uint64_t bytes = tiled.tiles / tiled.run_tiles * rows.bytes();
  if (tiled.exchanged) {
    const auto all = static_cast<int64_t>(bytes);
    bytes = static_cast<uint64_t>(bands.begin(all, rank.rank + 1) - bands.begin(all, rank.rank));
  }
  for (uint32_t k = 0; k < codes.others; ++k) bytes += tensors[codes.first_other + k].rows.bytes();
  return bytes;
}

Move ReadPlan::other_move(const Move& codes, uint32_t other) const {
  const uint32_t tensor = tensors[codes.tensor].first_other + other;
  return {tensor, codes.first_row, codes.rows, 0};
}

io::Extent ReadPlan::other_extent(const Move& codes, uint32_t other) const {
  const TensorPlan& t = tensors[tensors[codes.tensor].first_other + other];
  const Piece& piece = params[t.param].param->pieces[t.piece];
  const auto row = [&](int64_t at) {
    return static_cast<uint64_t>(t.plane().row_of(piece.stored_output(piece.cut.row + at)));
  };
  const uint64_t bytes = stored_row_bytes(t);
  const uint64_t first = row(codes.first_row), end = row(codes.first_row + codes.rows - 1) + 1;
  // The last row may be shorter.
  const uint64_t begin = t.matrix_begin(piece) + first * bytes;
  const uint64_t length =
      std::min((end - first) * bytes, t.stored->offset + t.stored->bytes - begin);
  return {t.stored->file, begin, length};
}

size_t ReadPlan::most_extents() const {
  size_t most = 1;
  for (const TiledTensor& t : sweep) most = std::max<size_t>(most, 1 + tensors[t.tensor].others);
  for (const TensorPlan& t : tensors)
    if (t.origin == Origin::spill || t.group != ScaleGroup::none || is_packed_in_spill(t))
      most = std::max(most, planes_in_spill(params[t.param].format));
  return most;
}

size_t planes_in_spill(const WeightFormat& format) {
  if (format.scales != ScaleKind::grouped) return 1;
  return has_zeros(format) ? 3 : 2;
}

uint64_t TensorPlan::matrix_begin(const Piece& of) const {
  return stored->offset +
         stored->bytes / matrices * static_cast<uint64_t>(of.view.index.value_or(0));
}

uint64_t stored_row_bytes(const TensorPlan& t) {
  if (t.plane().row_bytes > 0) return t.plane().row_bytes;
  const int64_t rows = t.plane().row_of(t.matrix->outputs - 1) + 1;
  return t.stored->bytes / t.matrices / static_cast<uint64_t>(rows);
}

TileCost tile_cost(const ReadPlan& plan, const TensorPlan& codes, const RowsInFile& rows) {
  TileCost cost{.row = rows.row_bytes};
  if (codes.origin == Origin::spill)
    cost.fixed = (planes_in_spill(plan.params[codes.param].format) - 1) * 2 * io::kDirectAlignment;
  const ParamPlan& param = plan.params[codes.param];
  if (codes.origin == Origin::checkpoint && plan.is_packed_in_spill(codes)) {
    const size_t planes = planes_in_spill(param.format);
    uint64_t packed = 0;
    for (size_t i = 0; i < planes; ++i)
      packed += plane_bytes(param.format, kPlanes[i], kPanelRows, param.param->cols);
    cost.fixed = (planes - 1) * 2 * io::kDirectAlignment;
    cost.row = std::max(
        cost.row, ceil_div(packed, uint64_t{kPanelRows}) * static_cast<uint64_t>(rows.piece_rows));
  }
  for (uint32_t k = 0; k < codes.others; ++k) {
    const TensorPlan& other = plan.tensors[codes.first_other + k];
    const uint64_t bytes = stored_row_bytes(other);
    // A row in the file may reach over the outputs between two runs. The first and the last row of
    // this plane may be shared with outputs that are not read.
    const uint64_t outputs = ceil_div(rows.row_bytes, stored_row_bytes(codes));
    const auto sharing = static_cast<uint64_t>(other.plane().row_outputs);
    cost.fixed += 2 * bytes + 2 * io::kDirectAlignment;
    if (sharing > 0) cost.row += ceil_div(outputs * bytes, sharing);
  }
  return cost;
}

uint32_t ReadPlan::host_sweep_tiles() const {
  return host_sweep.empty() ? 0 : host_sweep.back().first_tile + host_sweep.back().tiles;
}

const TiledParam& ReadPlan::param_of_host_tile(uint32_t index) const {
  return *(std::ranges::upper_bound(host_sweep, index, {}, &TiledParam::first_tile) - 1);
}

int64_t ReadPlan::tile_row(const Tile& tile) const {
  const TensorPlan& t = tensors[tile.move.tensor];
  return params[t.param].param->pieces[t.piece].offset + tile.move.first_row;
}

Weight ReadPlan::tile_weight(const Tile& tile, std::byte* memory) const {
  return tile_view(params[tensors[tile.move.tensor].param], tile.move.rows, memory);
}

// Values of a matrix's own tables are nowhere but in the checkpoint.
bool ReadPlan::has_part_of_rows(const TensorPlan& t) const {
  const Piece& piece = params[t.param].param->pieces[t.piece];
  return !piece.vector && piece.cut.cols < piece.cols && t.matrix->tables.empty();
}

uint64_t ReadPlan::storage_bytes() const {
  return std::accumulate(units.begin(), units.end(), uint64_t{0},
                         [](uint64_t sum, const UnitPlan& u) { return sum + u.storage_bytes; });
}

uint64_t ReadPlan::read_bytes() const {
  return std::accumulate(spans.begin(), spans.end(), uint64_t{0}, [&](uint64_t sum, const Span& s) {
    return sum + (s.reader < 0 || s.reader == rank.rank ? s.length : 0);
  });
}

uint64_t ReadPlan::needed_bytes(const TensorPlan& t) const {
  const Cut& cut = params[t.param].param->pieces[t.piece].cut;
  if (t.origin == Origin::spill) return t.rows.bytes();
  if (t.source > 0 && !t.plane().input_major()) return t.rows.bytes();
  if (t.plane().input_major()) {
    const auto all = static_cast<uint64_t>(t.matrix->outputs);
    return t.rows.bytes() / all * static_cast<uint64_t>(cut.rows);
  }
  const Piece& piece = params[t.param].param->pieces[t.piece];
  const uint64_t row = t.matrix->kept ? stored_row_bytes(t) * static_cast<uint64_t>(cut.cols) /
                                            static_cast<uint64_t>(piece.cols)
                                      : row_bytes(t.stored->dtype, cut.cols);
  const int64_t slice = t.plane().slice_outputs;  // of each row there is only a part
  const uint64_t all = static_cast<uint64_t>(cut.rows) * row;
  return slice > 0 ? all / static_cast<uint64_t>(t.matrix->outputs / slice) : all;
}

uint64_t ReadPlan::step_bytes(int64_t tokens) const {
  double sum = 0;
  for (const ParamPlan& p : params) {
    if (!p.only_looked_up()) sum += used_share(*p.param, tokens) * static_cast<double>(p.bytes);
  }
  return static_cast<uint64_t>(sum);
}

double ReadPlan::expert_misses(int64_t tokens) const {
  const auto slots = static_cast<double>(std::min<uint64_t>(expert_slots, experts.size()));
  const auto all = static_cast<double>(std::max<size_t>(experts.size(), 1));
  const double misses = knows_reuse() ? 1 - expert_reuse.hit_rate(expert_slots) : 1 - slots / all;
  if (tokens == 1) return misses;
  // Several tokens hit each slot once.
  const auto used = static_cast<double>(std::max<uint64_t>(experts_of_step(tokens), 1));
  return std::max(misses, 1 - slots / used);
}

uint64_t ReadPlan::experts_of_step(int64_t tokens) const {
  double sum = 0;
  for (const CachedExpert& e : experts) {
    for (uint32_t p = e.first_param; p < e.end_param; ++p) {
      if (params[p].tier != Tier::cached) continue;
      sum += used_share(*params[p].param, tokens);
      break;
    }
  }
  return static_cast<uint64_t>(std::lround(sum));
}

Weight ReadPlan::weight(const ParamPlan& p, std::byte* unit_storage) const {
  return weight_in(p.kept_format(), p.param->rows, p.param->cols, unit_storage + p.offset);
}

// Returns whether pieces are in the same bytes and are handled alike.
bool ReadPlan::share_reads(const TensorPlan& a, const TensorPlan& b) const {
  if (a.stored != b.stored || a.group != b.group || a.origin != b.origin) return false;
  if (a.origin == Origin::spill) return false;
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
