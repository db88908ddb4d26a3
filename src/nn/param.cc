#include "src/nn/param.h"

#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

int64_t aligned(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

}  // namespace

Param make_matrix(std::string path, ParamRole role, WeightLayout layout,
                  const std::vector<PieceSpec>& specs, Rank rank) {
  Param p{std::move(path), role, layout, {}, 0, 0, {}};
  for (const PieceSpec& s : specs) {
    Piece piece{s.source, s.rows, s.cols, false, s.shard.cut(s.rows, s.cols, rank), p.rows};
    p.rows += layout == WeightLayout::packed ? aligned(piece.cut.rows, kPanelRows) : piece.cut.rows;
    check(p.pieces.empty() || p.cols == piece.cut.cols, "pieces of a parameter differ in columns");
    p.cols = piece.cut.cols;
    p.pieces.push_back(std::move(piece));
  }
  return p;
}

Param make_vector(std::string path, ParamRole role, const std::vector<PieceSpec>& specs, Rank rank,
                  int64_t align) {
  Param p{std::move(path), role, WeightLayout::rows, {}, 1, 0, {}};
  for (const PieceSpec& s : specs) {
    Cut as_rows = s.shard.cut(s.rows, 1, rank);
    Piece piece{s.source, 1, s.rows, true, {0, 1, as_rows.row, as_rows.rows}, p.cols};
    p.cols += aligned(as_rows.rows, align);
    p.pieces.push_back(std::move(piece));
  }
  return p;
}

}  // namespace sluice
