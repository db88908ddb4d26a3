#include "src/load/tile_stream.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

TileStream::TileStream(const ReadPlan& plan, const io::CheckpointIndex& index,
                       const Kernels& encoder, Ledger& ledger, std::span<const float> amax,
                       LoadOptions options)
    : plan_(plan), encoder_(encoder), amax_(amax.begin(), amax.end()) {
  LookupShape lookup = lookup_shape(plan);
  if (lookup.slot_bytes > 0) {
    lookup_ = Buffer(ledger, Use::staging, "embedding rows", stream_memory(plan).lookup,
                     Buffer::Touch::now);
    lookup_tile_ = lookup.slot_bytes * kLookupSlots;
    lookup_reader_ = io::open_reader(index.files(), lookup_.bytes().first(lookup_tile_),
                                     {.kind = options.reader, .slot_bytes = lookup.slot_bytes});
  }
  if (!plan.sweep.empty()) {
    auto buffers = static_cast<uint32_t>(tile_buffers(plan));
    staging_ = Buffer(ledger, Use::staging, "sweep staging", plan.slot_bytes * buffers,
                      Buffer::Touch::now);
    tiles_ =
        Buffer(ledger, Use::staging, "sweep tiles", plan.tile_bytes * buffers, Buffer::Touch::now);
    for (uint32_t b = buffers; b > 0; --b) free_buffers_.push_back(b - 1);
    reader_ = io::open_reader(index.files(), staging_.bytes().first(plan.slot_bytes * buffers),
                              {.kind = options.reader, .slot_bytes = plan.slot_bytes});
    queue_ = std::make_unique<EncodeQueue>(plan, encoder, std::span<const Weight>{},
                                           options.threads, amax_);
    for (uint32_t i = 0; i < plan.sweep.size(); ++i) {
      uint32_t tensor = plan.moves[plan.sweep[i].first_move].tensor;
      const Param* param = plan.params[plan.tensors[tensor].param].param;
      auto [at, fresh] = tiles_of_.try_emplace(param, i, i + 1);
      at->second.second = i + 1;
    }
  }
  for (const ParamPlan& p : plan.params) {
    if (p.streamed) p.param->stream = this;
  }
  if (!plan.sweep.empty()) thread_ = std::jthread([this](std::stop_token s) { read_tiles(s); });
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

uint32_t TileStream::tile_index(const Param& param, int64_t row) const {
  auto [first, end] = tiles_of_.at(&param);
  auto sweep = std::span(plan_.sweep);
  auto after =
      std::upper_bound(sweep.begin() + first, sweep.begin() + end, row,
                       [&](int64_t wanted, const Span& s) { return wanted < plan_.tile_row(s); });
  return static_cast<uint32_t>(after - sweep.begin()) - 1;
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
    if (e.ready) free_buffers_.push_back(e.buffer);
  }
  while (!entries_.empty() && entries_.front().abandoned && entries_.front().ready) {
    entries_.pop_front();
    ++first_id_;
  }
  if (!foreseen) next_tile_ = tile;
}

WeightTile TileStream::tile(const Param& param, int64_t row) {
  uint32_t wanted = tile_index(param, row);
  std::unique_lock lock(mutex_);
  if (held_) free_buffers_.push_back(*std::exchange(held_, std::nullopt));
  seek(wanted);
  changed_.notify_all();
  auto start = std::chrono::steady_clock::now();
  Entry* entry = nullptr;
  changed_.wait(lock, [&] {
    if (failure_) return true;
    auto found = std::ranges::find_if(entries_, std::not_fn(&Entry::abandoned));
    entry = found == entries_.end() ? nullptr : &*found;
    return entry != nullptr && entry->tile == wanted && entry->ready;
  });
  if (failure_) std::rethrow_exception(failure_);
  report_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++report_.tiles_used;
  held_ = entry->buffer;
  entry->abandoned = true;  // its buffer is compute's now
  const Span& span = plan_.sweep[wanted];
  return {plan_.tile(span, memory(*held_)), plan_.tile_row(span)};
}

void TileStream::read_tiles(std::stop_token stop) {
  try {
    while (!stop.stop_requested()) {
      submit_reads();
      if (reads_in_flight_ > 0) {
        io::ReadResult read = reader_->wait();
        --reads_in_flight_;
        Weight tile;
        const Span* span = nullptr;
        {
          std::lock_guard lock(mutex_);
          const Entry& e = entries_[read.tag - first_id_];
          span = &plan_.sweep[e.tile];
          tile = plan_.tile(*span, memory(e.buffer));
        }
        queue_->push({span, read, tile});
        ++encoding_;
        take_finished(false);
      } else if (encoding_ > 0) {
        take_finished(true);
      } else {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, stop, [&] { return !free_buffers_.empty(); });
      }
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void TileStream::submit_reads() {
  while (reader_->free_slots() > 0) {
    uint64_t id = 0;
    const Span* span = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (free_buffers_.empty()) return;
      id = first_id_ + entries_.size();
      span = &plan_.sweep[next_tile_];
      entries_.push_back({next_tile_, free_buffers_.back(), false, false});
      free_buffers_.pop_back();
      next_tile_ = (next_tile_ + 1) % static_cast<uint32_t>(plan_.sweep.size());
    }
    reader_->submit({span->file, span->offset, span->length, id});
    ++reads_in_flight_;
  }
}

void TileStream::take_finished(bool block) {
  for (const ArrivedSpan& finished : queue_->take_finished(block)) {
    --encoding_;
    reader_->release(finished.read);
    const Move& move = plan_.moves[finished.span->first_move];
    refuse_damaged(plan_.tensors[move.tensor].stored->name,
                   queue_->stats(finished.span->first_move));
    std::lock_guard lock(mutex_);
    Entry& e = entries_[finished.read.tag - first_id_];
    e.ready = true;
    if (e.abandoned) free_buffers_.push_back(e.buffer);
    report_.io = reader_->stats();
    changed_.notify_all();
  }
}

void TileStream::embed(const Kernels& kernels, const Param& table, std::span<const int32_t> ids,
                       Tensor out) {
  auto tensor = std::ranges::find_if(
      plan_.tensors, [&](const TensorPlan& t) { return plan_.params[t.param].param == &table; });
  const ParamPlan& p = plan_.params[tensor->param];
  RowsInFile rows = rows_in_file(plan_, *tensor);
  auto first_row = [&](int32_t id) { return id / rows.group * rows.group; };
  auto group_rows = [&](int32_t id) { return std::min(rows.group, rows.rows - first_row(id)); };

  Weight tile = tile_view(p, rows.group, lookup_.data() + lookup_tile_);
  for (size_t submitted = 0, done = 0; done < ids.size(); ++done) {
    for (; submitted < ids.size() && lookup_reader_->free_slots() > 0; ++submitted) {
      int32_t id = ids[submitted];
      lookup_reader_->submit({tensor->stored->file,
                              rows.begin + static_cast<uint64_t>(first_row(id)) * rows.row_bytes,
                              static_cast<uint64_t>(group_rows(id)) * rows.row_bytes, submitted});
    }
    io::ReadResult read = lookup_reader_->wait();
    int32_t id = ids[read.tag];
    EncodeArgs args;
    args.stored = tensor->stored->dtype;
    args.source = read.bytes.data() + rows.skip;
    args.source_stride = static_cast<int64_t>(rows.row_bytes);
    args.rows = group_rows(id);
    args.group = tensor->group;
    args.to = tile;
    if (tensor->group == ScaleGroup::tensor)
      args.tensor_amax = amax_[static_cast<size_t>(tensor - plan_.tensors.begin())];
    refuse_damaged(tensor->stored->name, encoder_.encode(args));
    lookup_reader_->release(read);
    int32_t within = static_cast<int32_t>(id - first_row(id));
    kernels.embed(tile, {&within, 1}, out.rows_from(static_cast<int64_t>(read.tag), 1));
  }
}

void TileStream::add_stats(LoadReport& report) const {
  for (const Span& s : plan_.sweep) {
    TensorReport& t = report.tensors[plan_.moves[s.first_move].tensor];
    t.stats.add(queue_->stats(s.first_move));
  }
}

StreamReport TileStream::report() const {
  std::lock_guard lock(mutex_);
  StreamReport report = report_;
  if (lookup_reader_) report.io += lookup_reader_->stats();
  return report;
}

}  // namespace sluice
