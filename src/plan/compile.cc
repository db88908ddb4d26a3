#include "src/plan/compile.h"

#include <algorithm>
#include <optional>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/rows_in_file.h"

namespace sluice {
namespace {

constexpr uint64_t kFewestSlots = 4;

// Appends the reads of tensors: as many whole row groups a span as a slot holds. Small tensors that
// follow one another in the file share a span.
class SpanWriter {
 public:
  SpanWriter(ReadPlan& plan, uint64_t most_bytes, uint64_t ring_slots)
      : plan_(plan),
        most_(most_bytes),
        ring_slots_(ring_slots),
        like_(plan.tensors.size(), kNone) {}

  // Appends the load's spans of tensors that share reads. The largest values of streamed, measured
  // tensors are found here once for all sweeps.
  void append(std::span<const uint32_t> tensors, bool only_count) {
    only_count_ = only_count;
    const TensorPlan& first = plan_.tensors[tensors.front()];
    bool streamed = plan_.params[first.param].streamed();
    if (!first.is_measured()) {
      if (!streamed) append_spans(tensors, false, true);
      return;
    }
    const uint64_t spans = spans_of(tensors);
    bool read_twice = streamed || spans > ring_slots_;
    for (uint32_t t : tensors) {
      plan_.tensors[t].measure_spans = static_cast<uint32_t>(spans);
      plan_.tensors[t].read_twice = read_twice;
    }
    append_spans(tensors, true, !read_twice);
    if (read_twice && !streamed) append_spans(tensors, false, true);
  }

  void append_to_sweep(uint32_t tensor) {
    const TensorPlan& t = plan_.tensors[tensor];
    if (const uint32_t like = like_[t.alike]; like != kNone) {
      TiledTensor tiled = plan_.sweep[like];
      tiled.tensor = tensor;
      tiled.first_tile = plan_.sweep_tiles();
      plan_.sweep.push_back(tiled);
      return;
    }
    like_[t.alike] = static_cast<uint32_t>(plan_.sweep.size());
    const ParamPlan& param = plan_.params[t.param];
    const RowsInFile rows = rows_in_sweep(plan_, t);
    const TileCost cost = tile_cost(plan_, t, rows);
    const int64_t step = rows_per_span(rows, most_ - std::min(most_, cost.fixed), cost.row);
    TiledTensor tiled{.tensor = tensor,
                      .first_tile = plan_.sweep_tiles(),
                      .tile_rows = step * rows.piece_rows,
                      .run_rows = rows.rows * rows.piece_rows};
    tiled.tiles = tiled.run_tiles = static_cast<uint32_t>(ceil_div(rows.rows, step));
    // One run, or all rows of all runs.
    tiled.tiles *= static_cast<uint32_t>(t.rows.rows * t.rows.piece_rows / tiled.run_rows);
    tiled.exchanged = is_exchanged(t, tiled);
    plan_.sweep.push_back(tiled);
    plan_.tile_bytes = std::max(plan_.tile_bytes, tile_bytes(param, tiled.tile_rows));
  }

 private:
  // Spans of one tensor are about equally long: a short one costs the disk as much as a long one.
  int64_t rows_per_span(const TensorPlan& first, const RowsInFile& rows) const {
    const uint64_t fixed =
        first.origin == Origin::spill ? tile_cost(plan_, first, rows).fixed : uint64_t{0};
    return rows_per_span(rows, most_ - std::min(most_, fixed), rows.row_bytes);
  }
  static int64_t rows_per_span(const RowsInFile& rows, uint64_t most, uint64_t row_bytes) {
    int64_t groups = ceil_div(rows.rows, rows.group);
    auto fit = std::max<int64_t>(1, static_cast<int64_t>(most / row_bytes) / rows.group);
    return ceil_div(groups, ceil_div(groups, fit)) * rows.group;
  }

  // Returns the rows of tensors that share reads, with the largest group (groups are powers of
  // two).
  RowsInFile rows_of(std::span<const uint32_t> tensors) const {
    RowsInFile rows = plan_.tensors[tensors.front()].rows;
    for (uint32_t t : tensors.subspan(1))
      rows.group = std::max(rows.group, plan_.tensors[t].rows.group);
    return rows;
  }

  // Returns whether ranks exchange the tiles of a tensor. Experts that a router chooses are not
  // met in the same order where the ranks' caches have others.
  bool is_exchanged(const TensorPlan& t, const TiledTensor& tiled) const {
    if (!plan_.has_part_of_rows(t) || plan_.params[t.param].param->is_routed()) return false;
    const int64_t last = (tiled.run_rows - 1) % tiled.tile_rows + 1;
    return smallest_band(last) > 0 && largest_share(plan_, t) > 0;
  }

  int64_t smallest_band(int64_t rows) const {
    int64_t least = rows;
    for (int r = 0; r < plan_.rank.size; ++r)
      least = std::min(least, plan_.bands.begin(rows, r + 1) - plan_.bands.begin(rows, r));
    return least;
  }

  // Exchanges of a tensor of whose rows all ranks have parts: in each, every rank has read some
  // whole groups. Groups that are too few for all are read by each rank.
  struct Exchanges {
    int64_t groups = 0;  // of all ranks
    int64_t count = 0;
    Bands bands;
    // Groups that a rank reads before an exchange.
    int64_t groups_before(int64_t exchange, int rank) const {
      const int64_t own = bands.begin(groups, rank + 1) - bands.begin(groups, rank);
      return own * exchange / count;
    }
  };
  Exchanges exchanges_of(std::span<const uint32_t> tensors) const {
    constexpr uint64_t kSmallestBand = 512;
    const TensorPlan& t = plan_.tensors[tensors.front()];
    const ParamPlan& param = plan_.params[t.param];
    const auto ranks = static_cast<uint64_t>(plan_.rank.size);
    const uint64_t share = tensors.size() > 1 || param.streamed() ? 0 : largest_share(plan_, t);
    if (share == 0 || t.rows.bytes() < kSmallestBand * ranks) return {};
    // The parts that a rank receives fit into its slot, too.
    const uint64_t row = std::max(t.rows.row_bytes, share * ranks);
    const auto fit = static_cast<int64_t>(most_ / row) / t.rows.group;
    const int64_t groups = t.rows.rows / t.rows.group, equal = groups / plan_.rank.size;
    if (fit == 0 || equal == 0) return {};
    Exchanges all{.groups = groups, .bands = plan_.bands};
    int64_t most = 0;
    for (int r = 0; r < plan_.rank.size; ++r)
      most = std::max(most, all.bands.begin(groups, r + 1) - all.bands.begin(groups, r));
    all.count = ceil_div(most, fit);
    if (smallest_band(groups) >= all.count) return all;
    const std::vector<uint64_t> alike(ranks);
    return {equal * plan_.rank.size, ceil_div(equal, fit), Bands(alike, 0)};
  }

  uint64_t spans_of(std::span<const uint32_t> tensors) const {
    const RowsInFile rows = rows_of(tensors);
    const Exchanges exchanges = exchanges_of(tensors);
    const int64_t alone = rows.rows - exchanges.groups * rows.group;
    return static_cast<uint64_t>(
        exchanges.count * plan_.rank.size +
        ceil_div(alone, rows_per_span(plan_.tensors[tensors.front()], rows)));
  }

  void append_spans(std::span<const uint32_t> tensors, bool measure, bool encode) {
    const RowsInFile rows = rows_of(tensors);
    const Exchanges exchanges = exchanges_of(tensors);
    const uint64_t spans = spans_of(tensors);
    if (exchanges.count > 0) plan_.exchange_bytes = plan_.slot_bytes;
    if (only_count_ && spans > 1) {
      note(spans, tensors.size());
      last_joins_ = false;
      return;
    }
    const Span like{.measure = measure, .encode = encode};
    int64_t row = 0;
    for (int64_t e = 0; e < exchanges.count; ++e) {
      for (int32_t r = 0; r < plan_.rank.size; ++r) {
        const int64_t count =
            (exchanges.groups_before(e + 1, r) - exchanges.groups_before(e, r)) * rows.group;
        Span span = like;
        span.reader = r;
        append_span(tensors, row, count, span);
        row += count;
      }
    }
    const int64_t step = rows_per_span(plan_.tensors[tensors.front()], rows);
    for (; row < rows.rows; row += step)
      append_span(tensors, row, std::min(step, rows.rows - row), like);
  }

  void append_span(std::span<const uint32_t> tensors, int64_t row, int64_t count, Span span) {
    const TensorPlan& t = plan_.tensors[tensors.front()];
    const RowsInFile rows = rows_of(tensors);
    const uint64_t length = rows.bytes(row, count);
    span.file = t.stored->file;
    span.offset = rows.offset(row);
    span.unit = plan_.params[t.param].unit;
    const bool whole =
        row == 0 && count == rows.rows && t.measure_spans == 0 && t.origin == Origin::checkpoint;
    const bool joins = whole && joinable(span.file, span.unit, span.offset, length);
    const uint64_t end = span.offset + length;
    if (!joins) last_ = span;
    last_joins_ = whole;
    last_.length = end - last_.offset;
    note(joins ? 0 : 1, tensors.size());
    if (!only_count_) store(tensors, row, count, joins);
    const bool is_ours = span.reader < 0 || span.reader == plan_.rank.rank;
    if (is_ours && !plan_.params[t.param].streamed()) plan_.units[span.unit].read_bytes += length;
  }

  // Counts spans, each with a move for each tensor; 0 spans: moves that join the last span.
  void note(uint64_t spans, uint64_t moves) {
    plan_.load_spans += spans;
    plan_.load_moves += std::max<uint64_t>(spans, 1) * moves;
  }

  // Rows of tensors as what ends the last span.
  void store(std::span<const uint32_t> tensors, int64_t row, int64_t count, bool joins) {
    if (!joins) {
      last_.first_move = static_cast<uint32_t>(plan_.moves.size());
      plan_.spans.push_back(last_);
    }
    Span& span = plan_.spans.back();
    for (uint32_t tensor : tensors) {
      const TensorPlan& t = plan_.tensors[tensor];
      const RowsInFile& own = t.rows;
      Move move{tensor, row * own.piece_rows, count * own.piece_rows,
                rows_of(tensors).offset(row) - span.offset + own.skip};
      if (t.plane().row_outputs != 1)  // all rows at once
        move.rows = plan_.params[t.param].param->pieces[t.piece].cut.rows;
      plan_.moves.push_back(move);
    }
    span.moves += static_cast<uint32_t>(tensors.size());
    span.length = last_.length;
  }

  // Returns whether these bytes follow the last span closely enough to be one read with it.
  bool joinable(uint32_t file, uint32_t unit, uint64_t begin, uint64_t length) const {
    constexpr uint64_t kClose = 4096;  // a gap that costs less than a read of its own
    if (plan_.load_spans == 0 || !last_joins_) return false;
    const uint64_t end = last_.offset + last_.length;
    const bool close =
        last_.file == file && last_.unit == unit && begin >= end && begin - end <= kClose;
    return close && begin + length - last_.offset <= most_;
  }

  ReadPlan& plan_;
  uint64_t most_;
  uint64_t ring_slots_;
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> like_;  // by TensorPlan::alike, the place in the sweep of one of these
  bool only_count_ = false;
  Span last_;  // without its moves
  bool last_joins_ = false;
};

// The streamed tensors as a forward pass meets them: in the order of the module tree, except that a
// table which is the head too comes last.
std::vector<uint32_t> sweep_order(const ReadPlan& plan) {
  std::vector<uint32_t> order, tied;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const TensorPlan& tensor = plan.tensors[t];
    if (tensor.source > 0) break;  // other planes, which are behind all codes
    const ParamPlan& p = plan.params[tensor.param];
    if (!p.streamed() || p.only_looked_up() || tensor.stored->bytes == 0) continue;
    (p.table == Table::tied ? tied : order).push_back(t);
  }
  order.insert(order.end(), tied.begin(), tied.end());
  return order;
}

// Whole panels, as many as make a copy that a link is fast with.
int64_t host_tile_rows(const ParamPlan& p) {
  constexpr uint64_t kTileBytes = 2 * MiB;
  const int64_t rows = p.format.whole_blocks ? kScaleBlock : kPanelRows;
  int64_t groups = ceil_div(p.param->rows, rows);
  uint64_t group = host_tile_bytes(p, rows);
  int64_t fit = std::max<int64_t>(1, static_cast<int64_t>(kTileBytes / group));
  return ceil_div(groups, ceil_div(groups, fit)) * rows;
}

void plan_host_sweep(ReadPlan& plan) {
  plan.host_sweep.clear();
  plan.host_tile_bytes = plan.unpacked_bytes = 0;
  for (bool tied : {false, true}) {
    for (uint32_t i = 0; i < plan.params.size(); ++i) {
      const ParamPlan& p = plan.params[i];
      if (p.tier != Tier::host || p.only_looked_up() || tied != (p.table == Table::tied)) continue;
      const int64_t rows = host_tile_rows(p);
      const auto tiles = static_cast<uint32_t>(ceil_div(p.param->rows, rows));
      plan.host_sweep.push_back({i, plan.host_sweep_tiles(), tiles, rows});
      plan.host_tile_bytes = std::max(plan.host_tile_bytes, host_tile_bytes(p, rows));
      if (p.is_unpacked()) plan.unpacked_bytes = std::max(plan.unpacked_bytes, tile_bytes(p, rows));
    }
  }
}

void plan_reads(ReadPlan& plan, const Staging& staging, bool sizes_only) {
  plan.spans.clear();
  plan.moves.clear();
  plan.sweep.clear();
  plan.load_spans = plan.load_moves = 0;
  plan.tile_bytes = plan.exchange_bytes = 0;
  plan.slot_bytes =
      std::max(staging.slot_bytes, round_up(plan.widest_group + kAlignmentSlack, 4096));
  const uint64_t slots = std::max(kFewestSlots, staging.ring_bytes / plan.slot_bytes);
  SpanWriter writer(plan, plan.slot_bytes - kAlignmentSlack, slots);
  std::span<const uint32_t> order = plan.disk_order;
  for (size_t at = 0; at < order.size();) {
    const TensorPlan& first = plan.tensors[order[at]];
    if (plan.params[first.param].streamed() && !first.is_measured()) {
      ++at;  // the load does not read it
      continue;
    }
    const size_t end = plan.end_of_shared(at);
    const bool only_count = sizes_only && plan.spans.size() >= slots;
    if (plan.tensors[order[at]].stored->bytes > 0)
      writer.append(order.subspan(at, end - at), only_count);
    at = end;
  }
  const uint64_t spans = std::min<uint64_t>(slots, plan.spans.size());
  plan.row_amax.areas = std::min(plan.row_amax.users, spans + 1);
  for (uint32_t t : sweep_order(plan)) writer.append_to_sweep(t);
  plan_host_sweep(plan);
  plan.ring_bytes =
      plan.slot_bytes * std::min<uint64_t>(slots, std::max<uint64_t>(spans, plan.sweep_tiles()));
}

}  // namespace

void plan_sizes(ReadPlan& all, const Staging& staging, const Placement& placement,
                uint64_t expert_slots) {
  set_placement(all, placement);
  all.expert_slots = std::min<uint64_t>(expert_slots, all.experts.size());
  plan_reads(all, staging, true);
}

ReadPlan compile(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const Staging& staging, const Placement& placement, uint64_t expert_slots) {
  return compile(lay_out(model, index, quantize), staging, placement, expert_slots);
}

ReadPlan compile(ReadPlan laid_out, const Staging& staging, const Placement& placement,
                 uint64_t expert_slots) {
  set_placement(laid_out, placement);
  laid_out.expert_slots = std::min<uint64_t>(expert_slots, laid_out.experts.size());
  plan_reads(laid_out, staging, false);
  laid_out.spans.shrink_to_fit();
  laid_out.moves.shrink_to_fit();
  laid_out.sweep.shrink_to_fit();
  return laid_out;
}

}  // namespace sluice
