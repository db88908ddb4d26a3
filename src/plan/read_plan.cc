#include "src/plan/read_plan.h"

#include <algorithm>
#include <numeric>

#include "src/base/units.h"

namespace sluice {
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
  const bool by_rows = t.stored->dtype == DType::grouped_row;
  if (by_rows || t.plane().input_major()) {
    const auto all = static_cast<uint64_t>(t.matrix->outputs);
    return (by_rows ? t.stored->bytes : t.rows.bytes()) / all * static_cast<uint64_t>(cut.rows);
  }
  return static_cast<uint64_t>(cut.rows) * row_bytes(t.stored->dtype, cut.cols);
}

uint64_t ReadPlan::bytes_per_token() const {
  double sum = 0;
  for (const ParamPlan& p : params) {
    if (!p.only_looked_up()) sum += p.param->used * static_cast<double>(p.bytes);
  }
  return static_cast<uint64_t>(sum);
}

Weight ReadPlan::weight(const ParamPlan& p, std::byte* unit_storage) const {
  return weight_in(p.format, p.param->rows, p.param->cols, unit_storage + p.offset);
}

}  // namespace sluice
