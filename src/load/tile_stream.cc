#include "src/load/tile_stream.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/exchange.h"
#include "src/load/read_pace.h"
#include "src/load/spill_writer.h"

namespace sluice {

double StreamReport::wait_seconds() const {
  double sum = 0;
  for (const UnitStalls& u : units) sum += u.disk + u.copy;
  return sum;
}

StreamReport& StreamReport::operator+=(const StreamReport& later) {
  io += later.io;
  tiles_used += later.tiles_used;
  spilled_bytes += later.spilled_bytes;
  host_bytes += later.host_bytes;
  experts += later.experts;
  reuse = later.reuse;
  pass_bytes = later.pass_bytes;
  units.resize(later.units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].bytes += later.units[u].bytes;
    units[u].disk += later.units[u].disk;
    units[u].copy += later.units[u].copy;
    units[u].compute += later.units[u].compute;
  }
  return *this;
}

TileStream::TileStream(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
                       const Encoder& encoder, Ledger& ledger, Measured& measured,
                       LoadOptions options, std::stop_token stop)
    : plan_(plan),
      index_(index),
      has_own_memory_(device.has_own_memory()),
      options_(options),
      stop_(std::move(stop)),
      lists_(ledger.lease(Place::host, Use::staging, "sweep", plan_lists(plan).stream)),
      exchanges_(options.sweep_ranks != nullptr),
      window_(plan.sweep_tiles()),
      experts_(plan, ledger),
      rows_(plan, index, ledger, measured, options),
      fetcher_({.plan = plan,
                .index = index,
                .encoder = encoder,
                .device = &device,
                .weights = {},
                .measured = measured,
                .options = options}) {
  report_.units.resize(plan.units.size());
  if (!plan.sweep.empty()) {
    StreamMemory needs = stream_memory(plan, device.has_own_memory());
    memory_ = Buffer(ledger, Use::staging, "sweep", needs.sweep, Buffer::Touch::now);
    exchanged_ = memory_.bytes().last(sweep_exchange_bytes(plan));
    pinned_ = device.pin(memory_.bytes());
    tiles_ = device.memory(ledger, Use::staging, "sweep", needs.tiles, Buffer::Touch::now);
    for (uint64_t b = 0; b < tile_buffers(plan); ++b) used_.push_back(device.event());
    stats_.resize(plan.sweep.size());
    for (const TiledTensor& t : plan.sweep) {
      std::span<const TiledTensor>& all =
          tensors_of_[plan.params[plan.tensors[t.tensor].param].param];
      all = {all.empty() ? &t : all.data(), all.size() + 1};
    }
    open();
    submit();  // the disk begins before the first pass does
  }
  // Last: what failed before leaves none that points here.
  for (const ParamPlan& p : plan.params) {
    if (p.streamed()) p.param->stream = this;
  }
}

TileStream::~TileStream() {
  for (const ParamPlan& p : plan_.params) {
    if (p.param->stream == this) p.param->stream = nullptr;
  }
}

uint32_t TileStream::tile_index(const Param& param, int64_t row) const {
  auto first_row = [&](const TiledTensor& t) {
    return param.pieces[plan_.tensors[t.tensor].piece].offset;
  };
  const TiledTensor& tiled =
      *(std::ranges::upper_bound(tensors_of_.at(&param), row, {}, first_row) - 1);
  return tiled.tile_of(row - first_row(tiled));
}

std::byte* TileStream::buffer_memory(uint32_t buffer) const {
  std::byte* first =
      tiles_.data() != nullptr ? tiles_.data() : ring_.memory.data() + ring_.memory.size();
  return first + buffer * plan_.tile_bytes;
}

// Returns the ring of slots, and sets how many tile buffers remain. Reads wait in slots, so the
// slots get most of the tile buffers' memory if that is the host's: all of it if no tile is
// encoded.
Fetcher::Ring TileStream::ring(const SpillLayout* packed) {
  uint64_t widest = 0;
  bool all_packed = packed != nullptr && !has_own_memory_;
  for (uint32_t t = 0; t < plan_.sweep_tiles() && all_packed; ++t) {
    const Fetch fetch = tile_fetch(plan_, packed, t, 0).fetch;
    all_packed = fetch.form == Fetch::Form::packed;
    widest = std::max(widest, slot_bytes_of(plan_, packed, fetch));
  }
  const uint64_t all = used_.size();
  constexpr uint64_t kFewest = 2;  // compute uses one while another is encoded
  const uint64_t few = std::min(all, std::max(kFewest, all / 4));
  const bool are_ours = tiles_.data() == nullptr;
  buffers_ = static_cast<uint32_t>(all_packed ? 0 : are_ours ? few : all);
  const uint64_t slot = all_packed ? std::max(widest, plan_.slot_bytes) : plan_.slot_bytes;
  const uint64_t more = are_ours ? (all - buffers_) * plan_.tile_bytes : 0;
  const uint64_t bytes = plan_.slot_bytes * sweep_slots(plan_) + more;
  return {memory_.bytes().first(round_down(bytes, slot)), slot, options_.read.request_bytes};
}

// Opens the sources that there are now. Opening may find that one of them is useless, too.
void TileStream::open() {
  const SpillLayout* packed;
  do {
    const Spill* spill = options_.spill;
    fetcher_.close();
    write_spill({plan_, index_, options_, memory_.bytes(), stop_});
    packed = spill != nullptr && spill->ready() ? &spill->layout() : nullptr;
    ring_ = ring(packed);
    fetcher_.open(ring_);
  } while (fetcher_.packed() != packed);
  window_.restart(buffers_);
}

// Does what can be done without waiting. Reads come before encoding: a worker that is woken may get
// this thread's processor, and the disk would have nothing to do meanwhile.
bool TileStream::pump() {
  if (!take_encoded(false) || !poll()) return false;
  submit();
  encode_arrived();
  submit();  // into slots that encoding has freed, if it was this thread's
  return true;
}

void TileStream::encode_arrived() {
  while (SweepWindow::Entry* e = window_.next_to_encode()) {
    if (e->buffer) {
      e->fetch.tile = plan_.tile_weight(plan_.tile(e->first), buffer_memory(*e->buffer));
      e->fetch.after = used_[*e->buffer].get();
    }
    fetcher_.encode(e->fetch, e->read);
  }
}

TileStream::Choice& TileStream::choice_of(const TiledTensor& tensor) {
  return stats_[static_cast<size_t>(&tensor - plan_.sweep.data())].choice;
}

bool TileStream::is_routed(const TiledTensor& tensor) const {
  return plan_.params[plan_.tensors[tensor.tensor].param].param->is_routed();
}

// Returns the next tile to read, past those that the step does not want. None: the whole sweep is
// held, or the router before the next tile has yet to choose.
std::optional<uint32_t> TileStream::next_tile() {
  while (const std::optional<uint32_t> next = window_.next()) {
    const TiledTensor& tensor = plan_.tensor_of_tile(*next);
    if (!is_routed(tensor)) return next;
    Choice& choice = choice_of(tensor);
    if (choice == Choice::open) return std::nullopt;
    if (choice == Choice::wanted) return next;
    choice = Choice::open;
    window_.skip(tensor.first_tile + tensor.tiles - *next);
  }
  return std::nullopt;
}

// Returns the number of reads to keep in flight. A virtual disk answers all of them at once. Where
// experts stop the sweep and a window of it is short, as many again are asked for meanwhile, and
// half of the slots are for reads that are encoded.
size_t TileStream::most_in_flight() const {
  const size_t reads = reads_in_flight(options_.read, ring_.slot_bytes);
  if (plan_.experts.empty()) return reads;
  constexpr size_t kFewest = 2;
  return std::max(kFewest, std::min(2 * reads, ring_.memory.size() / ring_.slot_bytes / 2));
}

// Has the tile be encoded to where it stays, if it is an expert's that has a slot of the cache.
void TileStream::give_place(uint32_t index, Fetch& fetch) const {
  if (fetch.form != Fetch::Form::stored || has_own_memory_) return;
  const Tile tile = plan_.tile(index);
  const Param& param = *plan_.params[plan_.tensors[tile.move.tensor].param].param;
  if (const auto place = experts_.place(param, plan_.tile_row(tile), tile.move.rows))
    fetch.tile = *place;
}

void TileStream::submit() {
  for (const io::ReadResult& slot : window_.take_freed()) fetcher_.release(slot);
  const size_t most = most_in_flight();
  while (fetcher_.free_slots() > 0 && fetcher_.in_flight() < most) {
    const std::optional<uint32_t> next = next_tile();
    if (!next) return;
    TileFetch read = tile_fetch(plan_, fetcher_.packed(), *next,
                                has_own_memory_ ? 0 : ring_.slot_bytes, exchanges_);
    give_place(*next, read.fetch);
    const Fetch& fetch = window_.add(read);
    const TiledTensor& tensor = plan_.tensor_of_tile(*next);
    if (*next + read.tiles == tensor.first_tile + tensor.tiles) choice_of(tensor) = Choice::open;
    const uint64_t bytes = fetch.length + other_extents(plan_, fetcher_.packed(), fetch).bytes();
    report_.units[fetch.unit].bytes += bytes;
    read_ += bytes;
    if (fetch.form == Fetch::Form::packed) report_.spilled_bytes += bytes;
    fetcher_.submit(fetch);
  }
}

bool TileStream::receive(const Fetcher::Arrival& arrival) {
  if (arrival.kind == Fetcher::Arrival::Kind::read) window_.arrived(arrival.read, now());
  return arrival.kind != Fetcher::Arrival::Kind::restarted;
}

// Takes in all that has arrived.
bool TileStream::poll() {
  Fetcher::Arrival arrival;
  do {
    arrival = fetcher_.poll();
    if (!receive(arrival)) return false;
  } while (arrival.kind == Fetcher::Arrival::Kind::read);
  return true;
}

bool TileStream::take_encoded(bool block) {
  const auto encoded = fetcher_.take_encoded(block);
  if (!encoded) return false;
  for (const ArrivedFetch& f : *encoded) {
    refuse_damaged(index_, *plan_.tensors[f.fetch.move.tensor].stored, f.stats);
    window_.encoded(f.read.tag, f.stats);
  }
  return true;
}

// Waits until the first requested read has `tile`, and is ready.
bool TileStream::await(uint32_t tile) {
  if (fetcher_.is_outdated()) open();
  const double start = now();
  if (!poll()) return false;
  if (fetcher_.in_flight() == 0) report_.units[plan_.tile(tile).unit].compute += start - left_at_;
  next_tile();  // passes over what is not wanted: that needs no slot
  window_.seek(tile);
  if (window_.next() == tile) choice_of(plan_.tensor_of_tile(tile)) = Choice::wanted;
  while (pump()) {
    const SweepWindow::Entry* e = window_.wanted();
    if (e != nullptr && is_to_exchange(*e) && !exchange(*e)) return false;
    if (e != nullptr && e->state == SweepWindow::State::ready) {
      note_waits(*e, start);
      return true;
    }
    if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted in the middle of a pass");
    const bool is_encoded = e != nullptr && e->state != SweepWindow::State::reading;
    const bool encodes = is_encoded || fetcher_.in_flight() == 0;
    if (!(encodes ? take_encoded(true) : receive(fetcher_.wait()))) break;
  }
  return false;
}

// Returns whether ranks meet before compute uses a read: those that have read some of its rows, and
// those that have its parts in their spill cache.
bool TileStream::is_to_exchange(const SweepWindow::Entry& entry) const {
  if (!exchanges_ || !plan_.tensor_of_tile(entry.first).exchanged) return false;
  return entry.state ==
         (entry.fetch.exchanged ? SweepWindow::State::partial : SweepWindow::State::ready);
}

// Compute comes to exchanged rows in the same order on all ranks. Returns false where a rank reads
// its parts from its spill cache: from here on each rank reads for itself, and what was read for
// others is dropped.
bool TileStream::exchange(const SweepWindow::Entry& entry) {
  const Group& group = *options_.sweep_ranks;
  const auto has_rows = static_cast<std::byte>(entry.fetch.exchanged);
  const std::span<const std::byte> all = group.meet({&has_rows, 1});
  exchanges_ = std::ranges::count(all, std::byte{1}) == std::ssize(all);
  if (!exchanges_) {
    fetcher_.close();
    return false;
  }
  window_.complete(exchange_rows(plan_, group, entry.fetch, entry.read,
                                 exchanged_.first(plan_.slot_bytes),
                                 exchanged_.subspan(plan_.slot_bytes)));
  // A read that fails would drop the rows, which the others do not exchange again: none is looked
  // at before these are encoded.
  while (entry.state != SweepWindow::State::ready) {
    encode_arrived();
    if (!take_encoded(true))
      fail(ErrorKind::runtime, "rows that ranks have exchanged are lost; begin the run again");
  }
  return true;
}

void TileStream::note_waits(const SweepWindow::Entry& entry, double start) {
  UnitStalls& stalls = report_.units[entry.fetch.unit];
  const double end = now(), arrived = std::clamp(entry.arrived, start, end);
  stalls.disk += arrived - start;
  stalls.copy += end - arrived;
}

void TileStream::note_stats(const SweepWindow::Entry& entry) {
  const TiledTensor& tiled = plan_.tensor_of_tile(entry.first);
  TensorStats& stats = stats_[static_cast<size_t>(&tiled - plan_.sweep.data())];
  if (entry.is_packed() || entry.first != tiled.first_tile + stats.tiles) return;
  ++stats.tiles;
  stats.sum.add(entry.stats);
}

// Has the window hold the read with `tile` for compute.
bool TileStream::use(uint32_t tile) {
  if (!await(tile)) return false;
  const SweepWindow::Entry& e = *window_.wanted();
  const std::optional<Weight> weight =
      e.is_packed() ? fetcher_.in_place(e.fetch.move, e.read) : e.fetch.tile;
  if (!weight) return false;
  held_ = *weight;
  const SweepWindow::Entry& held = window_.hold();
  note_stats(held);
  report_.tiles_used += held.tiles;
  const Tile first = plan_.tile(held.first);
  const Param& param = *plan_.params[plan_.tensors[first.move.tensor].param].param;
  experts_.keep(param, held.first, held.tiles, held_, plan_.tile_row(first));
  return true;
}

// Compute has given `stream` all that it does with what is held.
void TileStream::let_go(DeviceStream& stream) {
  if (const auto& buffer = window_.held()->buffer) stream.record(*used_[*buffer]);
  window_.let_go();
}

// Returns whether a pass may read nothing after it: it has the last tile, or that one's expert may
// not be wanted.
bool TileStream::may_be_last(const SweepWindow::Entry& held) const {
  return held.has(plan_.sweep_tiles() - 1) ||
         (is_routed(plan_.sweep.back()) &&
          held.fetch.unit == plan_.tile(plan_.sweep_tiles() - 1).unit);
}

// Counts what the last pass has read, where a pass begins: it comes to earlier tiles again.
void TileStream::note_pass(uint32_t first_tile) {
  if (last_expected_ && first_tile <= *last_expected_) {
    pass_bytes_[passes_++ % pass_bytes_.size()] = read_;
    read_ = 0;
    if (options_.spill != nullptr) options_.spill->use_what_is_there();
  }
  last_expected_ = first_tile;
}

void TileStream::expect(const Param& param, bool is_wanted) {
  const std::span<const TiledTensor> tensors = tensors_of_.at(&param);
  note_pass(tensors.front().first_tile);
  if (!is_wanted) return skip(tensors);
  for (const TiledTensor& t : tensors) choice_of(t) = Choice::wanted;
  if (experts_.has(param)) experts_.want(param);
}

// The step reads nothing of these tensors.
void TileStream::skip(std::span<const TiledTensor> tensors) {
  for (const TiledTensor& t : tensors) choice_of(t) = Choice::unwanted;
  // Perhaps no more tiles are wanted, if the sweep's end is not.
  if (&tensors.back() == &plan_.sweep.back()) index_.refuse_changes();
}

// Has the step pass over the experts that are in the cache. Where an earlier step has ended before
// all that it wanted was used, this is not written any more.
void TileStream::choose_experts() {
  while (window_.leave_places() && take_encoded(true)) {
  }
  for (uint32_t e : experts_.choose()) {
    for (uint32_t p = plan_.experts[e].first_param; p < plan_.experts[e].end_param; ++p) {
      const auto tensors = tensors_of_.find(plan_.params[p].param);
      if (tensors != tensors_of_.end()) skip(tensors->second);
    }
  }
}

bool TileStream::is_at_hand(const Param& param) {
  if (experts_.is_choosing()) choose_experts();
  return experts_.find(param).has_value();
}

WeightTile TileStream::tile(const Param& param, int64_t row, DeviceStream& stream) {
  if (experts_.is_choosing()) choose_experts();
  if (const std::optional<Weight> there = experts_.find(param)) {
    if (window_.held() != nullptr) let_go(stream);
    window_.pass_skipped();
    // The next wait opens again what has failed.
    if (!fetcher_.is_outdated()) static_cast<void>(pump());
    left_at_ = now();
    return {*there, 0};
  }
  const uint32_t wanted = tile_index(param, row);
  if (window_.held() != nullptr && !window_.held()->has(wanted)) let_go(stream);
  while (window_.held() == nullptr && !use(wanted)) {
  }
  const SweepWindow::Entry& held = *window_.held();
  left_at_ = now();
  if (may_be_last(held)) index_.refuse_changes();
  const int64_t first_row = plan_.tile_row(plan_.tile(wanted));
  return {rows_from(held_, first_row - plan_.tile_row(plan_.tile(held.first))), first_row};
}

void TileStream::embed(const Param& table, std::span<const int32_t> ids, Tensor out,
                       DeviceStream& stream) {
  rows_.embed(table, ids, out, stream);
  if (plan_.sweep.empty()) index_.refuse_changes();  // else its last tile follows
}

void TileStream::add_stats(LoadReport& report) const {
  for (size_t t = 0; t < plan_.sweep.size(); ++t)
    report.tensors[plan_.sweep[t].tensor].stats.add(stats_[t].sum);
}

StreamReport TileStream::report() const {
  StreamReport report = report_;
  report.experts = experts_.counts();
  report.reuse = experts_.reuse();
  auto passes = pass_bytes_;
  const auto some = std::span(passes).first(std::min(passes_, passes.size()));
  std::ranges::sort(some);
  if (!some.empty()) report.pass_bytes = some[some.size() / 2];
  report.io = fetcher_.stats();
  report.io += rows_.stats();
  return report;
}

}  // namespace sluice
