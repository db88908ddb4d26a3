#include "src/plan/rows_in_file.h"

#include <numeric>

#include "src/base/units.h"

namespace sluice {
namespace {

// The stored matrix, or vector, that a piece is a view of.
struct MatrixInFile {
  uint64_t begin = 0;  // file offsets
  uint64_t end = 0;
  uint64_t row_bytes = 0;
};

MatrixInFile matrix_of(const TensorPlan& t, const Piece& piece) {
  const io::StoredTensor& stored = *t.stored;
  MatrixInFile m;
  m.begin = t.matrix_begin(piece);
  m.end = m.begin + stored.bytes / t.matrices;
  if (t.matrix->kept) {
    m.row_bytes = stored_row_bytes(t);
    return m;
  }
  const int64_t cols = piece.vector   ? 1
                       : t.transposed ? stored.shape[stored.shape.size() - 1]
                                      : piece.cols;
  m.row_bytes = sluice::row_bytes(stored.dtype, cols);
  return m;
}

// Columns that a part of a transposed matrix has at least: whole cells of any type, and enough of
// them for an encoder.
constexpr int64_t kFewestColumns = 32;

// Bytes of a row before the columns that this rank has.
uint64_t skipped_bytes(const TensorPlan& t, const Piece& piece) {
  if (t.source > 0) return 0;  // encoding skips them
  if (!t.matrix->kept) return row_bytes(t.stored->dtype, piece.cut.col);
  return stored_row_bytes(t) * static_cast<uint64_t>(piece.cut.col) /
         static_cast<uint64_t>(piece.cols);
}

// The rows of the file that a rank needs, of a plane whose rows are inputs.
RowsInFile input_rows(const TensorPlan& t, const Piece& piece) {
  const StoredPlane& plane = t.plane();
  const int64_t rows = ceil_div(piece.cut.cols, plane.run_inputs) * plane.run_rows;
  const uint64_t row_bytes = t.stored->bytes / static_cast<uint64_t>(t.stored->shape[0]);
  const int64_t first = piece.cut.col / plane.run_inputs * plane.run_rows;
  return {.begin = t.stored->offset + static_cast<uint64_t>(first) * row_bytes,
          .row_bytes = row_bytes,
          .rows = rows,
          .group = plane.run_rows,
          .end = t.stored->offset + t.stored->bytes};
}

// The rows of the file that have scales of several outputs each: few, which are read at once.
RowsInFile shared_rows(const TensorPlan& t, const Piece& piece) {
  const auto row = [&](int64_t at) { return t.plane().row_of(piece.stored_output(at)); };
  const int64_t first = row(piece.cut.row), end = row(piece.cut.row + piece.cut.rows - 1) + 1;
  const uint64_t row_bytes = stored_row_bytes(t);
  return {.begin = t.matrix_begin(piece) + static_cast<uint64_t>(first) * row_bytes,
          .row_bytes = row_bytes,
          .rows = end - first,
          .group = end - first,
          .end = t.stored->offset + t.stored->bytes};
}

}  // namespace

RowsInFile rows_in_file(const Param& param, const TensorPlan& t) {
  const Piece& piece = param.pieces[t.piece];
  if (t.plane().input_major()) return input_rows(t, piece);
  if (t.plane().row_outputs != 1) return shared_rows(t, piece);
  const MatrixInFile stored = matrix_of(t, piece);
  const DType dtype = t.stored->dtype;
  const auto first = static_cast<uint64_t>(
      t.plane().row_of(piece.stored_output(piece.vector ? piece.cut.col : piece.cut.row)));
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

RowsInFile rows_in_spill(const Param& param, const TensorPlan& t, const WeightFormat& format) {
  RowsInFile rows{
      .rows = param.pieces[t.piece].cut.rows,
      .group = t.group == ScaleGroup::block || format.whole_blocks ? kScaleBlock : kPanelRows};
  for (size_t i = 0; i < planes_in_spill(format); ++i)
    rows.row_bytes += plane_bytes(format, kPlanes[i], kPanelRows, param.cols) / kPanelRows;
  rows.end = rows.offset(round_up(rows.rows, kPanelRows));
  return rows;
}

RowsInFile rows_in_sweep(const ReadPlan& plan, const TensorPlan& t) {
  if (t.origin == Origin::spill || t.rows.piece_rows == 1 || t.rows.group > 1) return t.rows;
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

std::optional<RowShare> row_share(const Param& param, const TensorPlan& t, Rank rank) {
  const Piece& piece = param.pieces[t.piece];
  if (t.origin == Origin::spill || piece.vector || piece.runs() > 1) return std::nullopt;
  const bool across = t.transposed || t.plane().input_major();  // a row is an input's
  if (!across && t.source > 0) return std::nullopt;
  const Cut cut = piece.shard.cut(piece.rows, piece.cols, rank), &own = piece.cut;
  const bool same_rows = across ? cut.col == own.col && cut.cols == own.cols
                                : cut.row == own.row && cut.rows == own.rows;
  if (!same_rows) return std::nullopt;
  const int64_t all = !across        ? piece.cols
                      : t.transposed ? t.stored->shape[t.stored->shape.size() - 1]
                                     : t.matrix->outputs;
  const uint64_t first = static_cast<uint64_t>(across ? piece.view.first + cut.row : cut.col),
                 count = static_cast<uint64_t>(across ? cut.rows : cut.cols),
                 elements = static_cast<uint64_t>(all), bytes = t.rows.row_bytes;
  const RowShare share{bytes * first / elements, bytes * count / elements};
  const uint64_t word = t.plane().input_major() ? dtype_bytes(t.stored->dtype) : 1;
  const bool whole = bytes * first % elements == 0 && bytes * count % elements == 0 &&
                     share.begin % word == 0 && share.bytes % word == 0;
  return whole && share.bytes > 0 ? std::optional(share) : std::nullopt;
}

}  // namespace sluice
