#include "src/load/fetch.h"

#include <algorithm>

#include "io/reader.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/rows_in_file.h"

namespace sluice {
namespace {

const SpilledTensor* find(const SpillLayout* packed, uint32_t tensor) {
  return packed == nullptr ? nullptr : packed->find(tensor);
}

Fetch packed_fetch(const SpilledTensor& from, const Move& move, uint32_t unit) {
  Fetch fetch;
  fetch.form = Fetch::Form::packed;
  const io::Extent codes = from.extent(0, move.first_row, move.rows);
  fetch.offset = codes.offset;
  fetch.length = codes.length;
  fetch.unit = unit;
  fetch.move = move;
  fetch.with_planes = from.planes > 1;
  return fetch;
}

Fetch span_fetch(const Span& span) {
  Fetch fetch;
  fetch.file = span.file;
  fetch.offset = span.offset;
  fetch.length = span.length;
  fetch.unit = span.unit;
  fetch.first_move = span.first_move;
  fetch.moves = span.moves;
  fetch.measure = span.measure;
  fetch.encode = span.encode;
  return fetch;
}

}  // namespace

uint64_t OtherExtents::bytes() const {
  uint64_t sum = 0;
  for (const io::Extent& extent : all()) sum += extent.length;
  return sum;
}

OtherExtents other_extents(const ReadPlan& plan, const SpillLayout* packed, const Fetch& fetch) {
  OtherExtents others;
  if (!fetch.with_planes) return others;
  const Move& move = fetch.move;
  if (fetch.form == Fetch::Form::packed) {
    const SpilledTensor& from = *find(packed, move.tensor);
    others.count = from.planes - 1;
    for (uint32_t k = 0; k < others.count; ++k)
      others.extents[k] = from.extent(k + 1, move.first_row, move.rows);
    return others;
  }
  others.count = plan.tensors[move.tensor].others;
  for (uint32_t k = 0; k < others.count; ++k) others.extents[k] = plan.other_extent(move, k);
  return others;
}

uint64_t slot_bytes_of(const ReadPlan& plan, const SpillLayout* packed, const Fetch& fetch) {
  uint64_t sum = io::bytes_in_slot(fetch.offset, fetch.length);
  const OtherExtents others = other_extents(plan, packed, fetch);
  for (const io::Extent& extent : others.all())
    sum += io::bytes_in_slot(extent.offset, extent.length);
  return sum;
}

std::span<const Move> moves_of(const ReadPlan& plan, const Fetch& fetch) {
  if (fetch.moves == 0) return {&fetch.move, 1};
  return std::span(plan.moves).subspan(fetch.first_move, fetch.moves);
}

Move band_of(const ReadPlan& plan, const Move& tile, int rank) {
  const int64_t begin = plan.bands.begin(tile.rows, rank);
  const int64_t end = plan.bands.begin(tile.rows, rank + 1);
  return {tile.tensor, tile.first_row + begin, end - begin, 0};
}

std::vector<Fetch> load_order(const ReadPlan& plan, const SpillLayout* packed, bool exchanges) {
  std::vector<Fetch> order;
  order.reserve(plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    Fetch stored = span_fetch(span);
    if (exchanges && span.reader == 0 && !find(packed, plan.moves[span.first_move].tensor)) {
      const Span& own = plan.spans[i + static_cast<size_t>(plan.rank.rank)];
      stored.offset = own.offset;
      stored.length = own.length;
      stored.moves = static_cast<uint32_t>(plan.rank.size);
      stored.exchanged = true;
      order.push_back(stored);
      i += static_cast<size_t>(plan.rank.size) - 1;
      continue;
    }
    const std::span<const Move> moves = moves_of(plan, stored);
    if (!std::ranges::all_of(moves, [&](const Move& m) { return find(packed, m.tensor); })) {
      check(plan.tensors[moves.front().tensor].origin == Origin::checkpoint,
            "a spill that has what is read from there");
      order.push_back(stored);
    } else if (span.encode) {  // the index knows what measuring would show
      for (const Move& move : moves)
        order.push_back(packed_fetch(*find(packed, move.tensor), move, span.unit));
    }
  }
  return order;
}

TileFetch tile_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t first,
                     uint64_t most_bytes, bool exchanges) {
  const Tile tile = plan.tile(first);
  const TiledTensor& tiled = plan.tensor_of_tile(first);
  TileFetch result;
  if (const SpilledTensor* from = find(packed, tile.move.tensor)) {
    const uint32_t end = tiled.first_tile + tiled.tiles;
    result.fetch = packed_fetch(*from, tile.move, tile.unit);
    result.fetch.copied = most_bytes == 0;
    for (uint32_t next = first + 1; next < end; ++next) {
      Move longer = tile.move;
      const Move last = plan.tile(next).move;
      longer.rows = last.first_row + last.rows - longer.first_row;
      Fetch fetch = packed_fetch(*from, longer, tile.unit);
      if (slot_bytes_of(plan, packed, fetch) > most_bytes) break;
      fetch.copied = false;
      result = {fetch, next + 1 - first};
    }
    return result;
  }
  const TensorPlan& tensor = plan.tensors[tile.move.tensor];
  check(tensor.origin == Origin::checkpoint, "a spill that has its tiles");
  result.fetch.file = tile.file;
  result.fetch.offset = tile.offset;
  result.fetch.length = tile.length;
  result.fetch.unit = tile.unit;
  result.fetch.move = tile.move;
  result.fetch.with_planes = tensor.others > 0;
  if (exchanges && tiled.exchanged) {
    const Move own = band_of(plan, tile.move, plan.rank.rank);
    const RowsInFile rows = rows_in_sweep(plan, tensor);
    result.fetch.offset = rows.offset(own.first_row);
    result.fetch.length = rows.bytes(own.first_row, own.rows);
    result.fetch.exchanged = true;
  }
  return result;
}

Fetch row_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t tensor, int64_t id) {
  const TensorPlan& t = plan.tensors[tensor];
  const uint32_t unit = plan.params[t.param].unit;
  if (const SpilledTensor* from = find(packed, tensor))
    return packed_fetch(*from, {tensor, id / kPanelRows * kPanelRows, kPanelRows, 0}, unit);
  const RowsInFile& rows = t.rows;
  const int64_t first = id / rows.group * rows.group;
  Fetch fetch;
  fetch.file = t.stored->file;
  fetch.offset = rows.offset(first);
  fetch.move = {tensor, first, std::min(rows.group, rows.rows - first), rows.skip};
  fetch.length = rows.bytes(first, fetch.move.rows);
  fetch.unit = unit;
  return fetch;
}

}  // namespace sluice
