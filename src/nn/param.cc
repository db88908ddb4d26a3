#include "src/nn/param.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

int64_t aligned(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// The view of `outputs` outputs, of which a rank has `count` from `begin` on.
View complete(View view, int64_t outputs, int64_t begin, int64_t count) {
  if (view.group == 0 || view.group >= outputs)
    view.group = view.stride = std::max<int64_t>(outputs, 1);
  check(view.first >= 0 && view.stride >= view.group, "a view's runs do not overlap");
  check(outputs % view.group == 0, "a view has whole runs");
  bool one_run = view.group >= outputs;
  check(one_run || (begin % view.group == 0 && count % view.group == 0), "ranks have whole runs");
  return view;
}

}  // namespace

Param make_matrix(std::string path, ParamRole role, WeightLayout layout,
                  const std::vector<PieceSpec>& specs, Rank rank) {
  Param p{.path = std::move(path), .role = role, .layout = layout};
  for (const PieceSpec& s : specs) {
    Cut cut = s.shard.cut(s.rows, s.cols, rank);
    View view = complete(s.view, s.rows, cut.row, cut.rows);
    Piece piece{.source = s.source,
                .rows = s.rows,
                .cols = s.cols,
                .cut = cut,
                .offset = p.rows,
                .view = view,
                .shard = s.shard};
    p.rows += layout == WeightLayout::packed ? aligned(piece.cut.rows, kPanelRows) : piece.cut.rows;
    check(p.pieces.empty() || p.cols == piece.cut.cols, "pieces of a parameter differ in columns");
    p.cols = piece.cut.cols;
    p.pieces.push_back(std::move(piece));
  }
  return p;
}

Param make_vector(std::string path, ParamRole role, const std::vector<PieceSpec>& specs, Rank rank,
                  int64_t align) {
  Param p{.path = std::move(path), .role = role, .layout = WeightLayout::rows, .rows = 1};
  for (const PieceSpec& s : specs) {
    Cut as_rows = s.shard.cut(s.rows, 1, rank);
    View view = complete(s.view, s.rows, as_rows.row, as_rows.rows);
    view.transposed = false;
    Piece piece{s.source, 1, s.rows, true, {0, 1, as_rows.row, as_rows.rows}, p.cols, view};
    p.cols += aligned(as_rows.rows, align);
    p.pieces.push_back(std::move(piece));
  }
  return p;
}

std::span<const std::unique_ptr<Param>> split(Param& param) {
  constexpr std::string_view kWeight = ".weight";
  auto stem = [&](const std::string& name) {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
  };
  const bool same_source = std::ranges::all_of(
      param.pieces, [&](const Piece& p) { return p.source == param.pieces.front().source; });
  for (size_t i = 0; i < param.pieces.size(); ++i) {
    const Piece& piece = param.pieces[i];
    if (i < param.parts.size()) {
      param.parts[i]->pieces.front().view = piece.view;  // its source may have changed
      continue;
    }
    const std::string source = stem(piece.source);
    const auto of_source = std::ranges::count(param.pieces, piece.source, &Piece::source);
    std::string name = same_source ? std::to_string(i) : source.substr(source.rfind('.') + 1);
    if (!same_source && of_source > 1) name += fmt::format(".{}", i);
    auto part = std::make_unique<Param>();
    part->path = fmt::format("{}.{}{}", stem(param.path), name, kWeight);
    part->role = param.role;
    part->layout = param.layout;
    part->share = param.share;
    part->expert = param.expert;
    part->pieces = {piece};
    part->pieces.front().offset = 0;
    const int64_t end = i + 1 < param.pieces.size() ? param.pieces[i + 1].offset : param.rows;
    part->rows = end - piece.offset;
    part->cols = param.cols;
    param.parts.push_back(std::move(part));
  }
  return param.parts;
}

}  // namespace sluice
