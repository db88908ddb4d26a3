#include "src/load/tile_stream.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/error.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/load/fallback.h"

namespace sluice {
namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// With what a direct read adds to it at both ends.
uint64_t bytes_read(const Spill::Extent& e) {
  return round_up(e.offset + e.length, io::kDirectAlignment) -
         round_down(e.offset, io::kDirectAlignment);
}

}  // namespace

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
                       const Encoder& encoder, Ledger& ledger, std::span<const float> amax,
                       LoadOptions options, std::stop_token stop)
    : plan_(plan),
      index_(index),
      encoder_(encoder),
      options_(options),
      stop_(std::move(stop)),
      amax_(amax.begin(), amax.end()),
      lookup_sources_(index),
      sources_(index) {
  report_.units.resize(plan.units.size());
  StreamMemory needs = stream_memory(plan, device.has_own_memory());
  if (LookupShape lookup = lookup_shape(plan); lookup.slot_bytes > 0) {
    lookup_ = Buffer(ledger, Use::staging, "embedding rows", needs.lookup, Buffer::Touch::now);
    lookup_slot_bytes_ = lookup.slot_bytes;
    lookup_tile_ = lookup.slot_bytes * kLookupSlots;
    lookup_row_ = lookup_tile_ + lookup.tile_bytes;
    lookup_encoder_ = make_cpu_encoder(Isa::automatic);
  }
  if (!plan.sweep.empty()) {
    slots_bytes_ = plan.slot_bytes * sweep_slots(plan);
    memory_ = Buffer(ledger, Use::staging, "sweep", needs.sweep, Buffer::Touch::now);
    pinned_ = device.pin(memory_.bytes());
    tiles_ = device.memory(ledger, Use::staging, "sweep", needs.tiles, Buffer::Touch::now);
    for (uint64_t b = 0; b < tile_buffers(plan); ++b) used_.push_back(device.event());
    queue_ =
        std::make_unique<EncodeQueue>(plan, encoder, std::span<const Weight>{}, memory_.bytes(),
                                      options.threads, options.spill, &signal_, amax_);
    stats_.resize(plan.sweep.size());
    for (const TiledTensor& t : plan.sweep) {
      std::span<const TiledTensor>& all =
          tensors_of_[plan.params[plan.tensors[t.tensor].param].param];
      all = {all.empty() ? &t : all.data(), all.size() + 1};
    }
  }
  if (!plan.sweep.empty()) {
    thread_ = start_thread<std::jthread>({"streaming"},
                                         [this](const std::stop_token& end) { read_tiles(end); });
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
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

bool TileStream::is_spilled(uint32_t tensor) const {
  return reads_spill_ && options_.spill->layout().find(tensor) != nullptr;
}

std::byte* TileStream::buffer_memory(uint32_t buffer) const {
  std::byte* first = tiles_.data() != nullptr ? tiles_.data() : memory_.data() + slots_bytes_;
  return first + buffer * plan_.tile_bytes;
}

uint32_t TileStream::tile_index(const Param& param, int64_t row) const {
  auto first_row = [&](const TiledTensor& t) {
    return param.pieces[plan_.tensors[t.tensor].piece].offset;
  };
  const TiledTensor& tiled =
      *(std::ranges::upper_bound(tensors_of_.at(&param), row, {}, first_row) - 1);
  return tiled.tile_of(row - first_row(tiled));
}

void TileStream::free_memory(const Entry& entry) {
  if (entry.buffer) {
    free_buffers_.push_back(*entry.buffer);
  } else if (--slot_users_[entry.slot.slot] == 0) {
    returned_.push_back(entry.slot);
  }
}

// Makes `tile` the first entry: drops what was read in vain when the sweep is not the one foreseen.
void TileStream::seek(uint32_t tile) {
  size_t dropped = 0;
  while (dropped < entries_.size() &&
         (entries_[dropped].abandoned || entries_[dropped].tile != tile)) {
    ++dropped;
  }
  bool foreseen = dropped < entries_.size();
  for (size_t i = 0; i < dropped; ++i) {
    Entry& e = entries_[i];
    if (e.abandoned) continue;
    e.abandoned = true;
    if (e.ready) free_memory(e);
  }
  while (!entries_.empty() && entries_.front().abandoned && entries_.front().ready) {
    entries_.pop_front();
    ++first_id_;
  }
  if (!foreseen) next_tile_ = tile;
}

// Blocks until `tile` is the first entry that is wanted, and ready.
void TileStream::await(std::unique_lock<std::mutex>& lock, uint32_t tile) {
  current_unit_ = plan_.tile(tile).unit;
  seek(tile);
  signal_.changed.notify_all();
  auto start = Clock::now();
  const Entry* entry = nullptr;
  signal_.changed.wait(lock, stop_, [&] {
    if (failure_) return true;
    mark_finished();
    auto found = std::ranges::find_if(entries_, std::not_fn(&Entry::abandoned));
    entry = found == entries_.end() ? nullptr : &*found;
    return entry != nullptr && entry->tile == tile && entry->ready;
  });
  if (failure_) std::rethrow_exception(failure_);
  if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted in the middle of a pass");
  auto now = Clock::now();
  auto arrived = std::clamp(entry->arrived, start, now);
  report_.units[current_unit_].disk += seconds(arrived - start);
  report_.units[current_unit_].copy += seconds(now - arrived);
}

TileStream::Entry TileStream::take_front() {
  auto found = std::ranges::find_if(entries_, std::not_fn(&Entry::abandoned));
  found->abandoned = true;  // its memory is compute's now
  return *found;
}

void TileStream::note_stats(const Entry& entry) {
  const TiledTensor& tiled = plan_.tensor_of_tile(entry.tile);
  TensorStats& stats = stats_[static_cast<size_t>(&tiled - plan_.sweep.data())];
  if (entry.tile != tiled.first_tile + stats.tiles) return;
  ++stats.tiles;
  stats.sum.add(entry.stats);
}

// Compute has given `stream` all that it does with the tile.
void TileStream::let_go(DeviceStream& stream) {
  if (!held_) return;
  if (held_->buffer) stream.record(*used_[*held_->buffer]);
  free_memory(*std::exchange(held_, std::nullopt));
}

WeightTile TileStream::tile(const Param& param, int64_t row, DeviceStream& stream) {
  uint32_t wanted = tile_index(param, row);
  const Tile tile = plan_.tile(wanted);
  const Move& move = tile.move;
  std::unique_lock lock(mutex());
  let_go(stream);
  while (true) {
    await(lock, wanted);
    held_ = take_front();  // from here on the reading thread leaves its memory alone
    std::optional<Weight> weight;
    if (held_->buffer) {
      weight = plan_.tile_weight(tile, buffer_memory(*held_->buffer));
      note_stats(*held_);
    } else {
      auto codes = held_->slot.bytes.subspan(held_->offset, held_->length);
      lock.unlock();
      weight = options_.spill->weight(move.tensor, move.first_row, codes);
      lock.lock();
    }
    if (weight) {
      ++report_.tiles_used;
      lock.unlock();
      // Every pass needs the last tile, and nothing that was read follows it.
      if (wanted + 1 == plan_.sweep_tiles()) index_.refuse_changes();
      return {*weight, plan_.tile_row(tile)};
    }
    free_memory(*std::exchange(held_, std::nullopt));
    const std::string& name = plan_.tensors[move.tensor].stored->name;
    options_.spill->stop_using(SpillDamaged(name).what(), true);
  }
}

void TileStream::open_reader() {
  reader_.reset();
  std::lock_guard lock(mutex());
  reads_spill_ = offer_spill(options_.spill, sources_);
  uint64_t widest = 0;
  bool all_spilled = true;
  for (uint32_t t = 0; t < plan_.sweep_tiles(); ++t) {
    Move move = plan_.tile(t).move;
    all_spilled = is_spilled(move.tensor);
    if (!all_spilled) break;
    Spill::Extent e = options_.spill->extent(move.tensor, move.first_row, move.rows);
    widest = std::max(widest, bytes_read(e));
  }
  // Spilled tiles wait in slots, so that these get the memory of tile buffers: half of it where
  // some tiles are still encoded, all where none is.
  uint64_t buffers = tile_buffers(plan_);
  uint64_t first_buffer = all_spilled ? buffers : reads_spill_ ? buffers / 2 : 0;
  slot_bytes_ = all_spilled ? std::max(widest, plan_.slot_bytes) : plan_.slot_bytes;
  uint64_t area = round_down(slots_bytes_ + first_buffer * plan_.tile_bytes, slot_bytes_);
  slot_users_.assign(area / slot_bytes_, 0);
  free_buffers_.clear();
  for (uint64_t b = buffers; b > first_buffer; --b)
    free_buffers_.push_back(static_cast<uint32_t>(b - 1));
  reader_ = io::open_reader(sources_.files(), memory_.bytes().first(area),
                            {.kind = options_.reader,
                             .slot_bytes = slot_bytes_,
                             .chunk_bytes = options_.read.request_bytes});
}

void TileStream::read_tiles(const std::stop_token& stop) {
  try {
    while (!stop.stop_requested()) {
      try {
        read_some(stop);
      } catch (const io::ReadError& e) {
        if (!fall_back(e, sources_, options_.spill)) throw;
        reads_in_flight_ = 0;  // this reader will not be asked again
        start_over_ = true;
      }
    }
  } catch (...) {
    std::lock_guard lock(mutex());
    failure_ = std::current_exception();
    signal_.changed.notify_all();
  }
}

void TileStream::read_some(const std::stop_token& stop) {
  if (start_over_ || reads_spill_ != spill_ready()) {
    start_over(stop);
    return;
  }
  submit_reads();
  if (reads_in_flight_ > 0) {
    receive();
  } else {
    wait_for_memory(stop);
  }
}

// The spill has become ready, or a file useless: drops what has been read and goes on from there
// with another reader. It may use the memory in another way, so that compute must have let go of
// it.
void TileStream::start_over(const std::stop_token& stop) {
  while (reads_in_flight_ > 0) receive();
  {
    std::unique_lock lock(mutex());
    auto idle = [&] {
      mark_finished();
      return encoding_ == 0 && !held_;
    };
    if (!signal_.changed.wait(lock, stop, idle)) return;
    auto wanted = std::ranges::find_if(entries_, std::not_fn(&Entry::abandoned));
    if (wanted != entries_.end()) next_tile_ = wanted->tile;
    first_id_ += entries_.size();
    entries_.clear();
    returned_.clear();
    if (reader_) past_io_ += reader_->stats();
    report_.io = {};
  }
  start_over_ = true;  // until it has worked out
  open_reader();
  start_over_ = false;
}

// Where the spill has tiles that lie one after the other.
Spill::Extent TileStream::extent(uint32_t first, uint32_t tiles) const {
  Move begin = plan_.tile(first).move, end = plan_.tile(first + tiles - 1).move;
  return options_.spill->extent(begin.tensor, begin.first_row,
                                end.first_row + end.rows - begin.first_row);
}

// As many as a slot holds, of one tensor.
uint32_t TileStream::tiles_of_read(uint32_t first) const {
  const TiledTensor& tiled = plan_.tensor_of_tile(first);
  uint32_t most = tiled.first_tile + tiled.tiles - first;
  auto fits = [&](uint32_t tiles) { return bytes_read(extent(first, tiles)) <= slot_bytes_; };
  uint32_t tiles = 1;
  while (tiles < most && fits(tiles + 1)) ++tiles;
  return tiles;
}

// For the `i`-th tile of a read that begins with `first`.
void TileStream::add_entry(const Entry& first, uint32_t i, const io::ReadRequest& request) {
  Entry entry = first;
  entry.tile = first.tile + i;
  entry.offset = first.buffer ? 0 : extent(entry.tile, 1).offset - request.offset;
  entry.length = first.buffer ? 0 : extent(entry.tile, 1).length;
  entries_.push_back(entry);
}

void TileStream::submit_reads() {
  std::unique_lock lock(mutex());
  mark_finished();
  for (const io::ReadResult& slot : std::exchange(returned_, {})) reader_->release(slot);
  while (reader_->free_slots() > 0) {
    const Tile tile = plan_.tile(next_tile_);
    io::ReadRequest request{tile.file, tile.offset, tile.length, first_id_ + entries_.size()};
    Entry entry;
    entry.tile = next_tile_;
    if (is_spilled(tile.move.tensor)) {
      entry.tiles = tiles_of_read(next_tile_);
      Spill::Extent all = extent(next_tile_, entry.tiles);
      request.file = sources_.choose(sources_.extra_file(), all.length);
      request.offset = all.offset;
      request.length = all.length;
      report_.spilled_bytes += all.length;
    } else {
      if (free_buffers_.empty()) return;
      entry.buffer = free_buffers_.back();
      free_buffers_.pop_back();
      request.file = sources_.choose(tile.file, tile.length);
    }
    entry.file = request.file;
    for (uint32_t i = 0; i < entry.tiles; ++i) add_entry(entry, i, request);
    report_.units[tile.unit].bytes += request.length;
    next_tile_ = (next_tile_ + entry.tiles) % plan_.sweep_tiles();
    lock.unlock();
    reader_->submit(request);
    ++reads_in_flight_;
    lock.lock();
  }
}

void TileStream::receive() {
  io::ReadResult read = reader_->wait();
  --reads_in_flight_;
  if (options_.timeline != nullptr) options_.timeline->add(read.bytes.size());
  std::unique_lock lock(mutex());
  Entry& e = entries_[read.tag - first_id_];
  e.arrived = Clock::now();
  report_.io = reader_->stats();
  sources_.arrived(e.file, read.bytes.size());
  if (e.buffer) {
    const Tile tile = plan_.tile(e.tile);
    Weight weight = plan_.tile_weight(tile, buffer_memory(*e.buffer));
    ++encoding_;
    lock.unlock();
    DeviceEvent* used = used_[*e.buffer].get();
    queue_->push({ArrivedSpan::Kind::tile, read, nullptr, tile.move, weight, used, {}});
    return;
  }
  slot_users_[read.slot] = e.tiles;
  for (size_t i = read.tag - first_id_, end = i + e.tiles; i < end; ++i) {
    Entry& tile = entries_[i];
    tile.arrived = e.arrived;
    tile.slot = read;
    tile.ready = true;
    if (tile.abandoned) free_memory(tile);
  }
  signal_.changed.notify_all();
}

// Takes in what has been encoded: whoever waits for a tile does so, and the reading thread.
void TileStream::mark_finished() {
  for (const ArrivedSpan& finished : queue_->take_finished(false)) {
    --encoding_;
    returned_.push_back(finished.read);
    refuse_damaged(index_, plan_.tensors[finished.move.tensor].stored->name, finished.stats);
    Entry& e = entries_[finished.read.tag - first_id_];
    e.stats = finished.stats;
    e.ready = true;
    if (e.abandoned) free_memory(e);
  }
}

// Every slot and buffer is in use.
void TileStream::wait_for_memory(const std::stop_token& stop) {
  auto start = Clock::now();
  std::unique_lock lock(mutex());
  uint32_t unit = current_unit_;
  bool full = encoding_ == 0;  // of tiles that compute has not used yet
  signal_.changed.wait(lock, stop, [&] {
    mark_finished();
    bool buffer = is_spilled(plan_.tile(next_tile_).move.tensor) || !free_buffers_.empty();
    return !returned_.empty() || (buffer && reader_->free_slots() > 0) ||
           reads_spill_ != spill_ready();
  });
  if (full) report_.units[unit].compute += seconds(Clock::now() - start);
}

void TileStream::add_stats(LoadReport& report) const {
  for (size_t t = 0; t < plan_.sweep.size(); ++t)
    report.tensors[plan_.sweep[t].tensor].stats.add(stats_[t].sum);
}

StreamReport TileStream::report() const {
  std::lock_guard lock(mutex());
  StreamReport report = report_;
  report.io += past_io_;
  report.io += lookup_io_;
  if (lookup_reader_) report.io += lookup_reader_->stats();
  return report;
}

}  // namespace sluice
