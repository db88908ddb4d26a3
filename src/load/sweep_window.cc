#include "src/load/sweep_window.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {

void SweepWindow::restart(uint32_t buffers) {
  check(!held_, "a window restarts while compute uses a tile of it");
  if (const Entry* first = wanted()) next_ = first->first;
  first_tag_ += entries_.size();
  entries_.clear();
  freed_.clear();
  buffers_ = buffers;
  free_buffers_.clear();
  for (uint32_t b = buffers; b > 0; --b) free_buffers_.push_back(b - 1);
}

std::optional<uint32_t> SweepWindow::next() const {
  uint32_t there = held_ ? held_->tiles : 0;
  for (const Entry& e : entries_)
    if (!e.abandoned || e.skipped) there += e.tiles;
  return there < tiles_ ? std::optional(next_) : std::nullopt;
}

const Fetch& SweepWindow::add(const TileFetch& read) {
  Entry& e = entries_.emplace_back();
  e.fetch = read.fetch;
  e.fetch.tag = first_tag_ + entries_.size() - 1;
  e.first = next_;
  e.tiles = read.tiles;
  next_ = (next_ + read.tiles) % tiles_;
  return e.fetch;
}

void SweepWindow::skip(uint32_t tiles) {
  const bool is_longer = !entries_.empty() && entries_.back().skipped;
  if (!is_longer) {
    Entry& e = entries_.emplace_back();
    e.first = next_;
    e.tiles = 0;
    e.state = State::ready;
    e.abandoned = true;
    e.skipped = true;
  }
  entries_.back().tiles += tiles;
  next_ = (next_ + tiles) % tiles_;
}

void SweepWindow::arrived(const io::ReadResult& read, double now) {
  Entry& e = entry(read.tag);
  e.read = read;
  e.arrived = now;
  e.state = e.is_packed() ? State::ready : e.fetch.exchanged ? State::partial : State::arrived;
  if (e.abandoned) free_memory(e);
}

void SweepWindow::complete(const io::ReadResult& read) {
  Entry& e = entry(read.tag);
  check(&e == wanted() && e.state == State::partial, "ranks exchange what compute wants next");
  e.read = read;
  e.state = State::arrived;
}

// Returns the next entry to encode: the first reads in compute order take the free encode buffers.
SweepWindow::Entry* SweepWindow::next_to_encode() {
  size_t before = held_ && held_->buffer ? 1 : 0;
  for (const Entry& e : entries_)
    before += e.abandoned && e.state == State::encoding && !e.has_place();
  for (Entry& e : entries_) {
    if (e.abandoned || e.is_packed()) continue;
    const bool has_place = e.has_place();
    if (!has_place && ++before > buffers_) continue;
    if (e.state != State::arrived || (!has_place && free_buffers_.empty())) continue;
    if (!has_place) {
      e.buffer = free_buffers_.back();
      free_buffers_.pop_back();
    }
    e.state = State::encoding;
    return &e;
  }
  return nullptr;
}

void SweepWindow::encoded(uint64_t tag, const EncodeStats& stats) {
  Entry& e = entry(tag);
  e.stats = stats;
  e.state = State::ready;
  freed_.push_back(e.read);
  if (e.abandoned) free_memory(e);
}

std::vector<io::ReadResult> SweepWindow::take_freed() { return std::exchange(freed_, {}); }

void SweepWindow::free_memory(const Entry& e) {
  if (e.state == State::reading || e.state == State::encoding) return;  // it is being written to
  if (e.buffer) {
    free_buffers_.push_back(*e.buffer);
  } else if (!e.has_place() || e.state == State::arrived) {
    freed_.push_back(e.read);
  }
}

void SweepWindow::abandon(Entry& e) {
  e.skipped = false;
  if (!std::exchange(e.abandoned, true)) free_memory(e);
}

bool SweepWindow::leave_places() {
  bool are_written = false;
  for (Entry& e : entries_) {
    if (!e.has_place()) continue;
    abandon(e);
    are_written = are_written || e.state == State::encoding;
  }
  drop_abandoned();
  return are_written;
}

void SweepWindow::drop_abandoned() {
  auto is_over = [](const Entry& e) {
    return e.abandoned && !e.skipped && e.state != State::reading && e.state != State::encoding;
  };
  while (!entries_.empty() && is_over(entries_.front())) {
    entries_.pop_front();
    ++first_tag_;
  }
}

void SweepWindow::seek(uint32_t tile) {
  check(!held_, "a window is moved while compute uses a tile of it");
  auto found =
      std::ranges::find_if(entries_, [&](const Entry& e) { return !e.abandoned && e.has(tile); });
  if (found == entries_.end()) next_ = tile;
  for (auto e = entries_.begin(); e != found; ++e) abandon(*e);
  drop_abandoned();
}

void SweepWindow::pass_skipped() {
  for (Entry& e : entries_) {
    if (!e.abandoned) break;
    e.skipped = false;
  }
  drop_abandoned();
}

const SweepWindow::Entry* SweepWindow::wanted() const {
  auto found = std::ranges::find(entries_, false, &Entry::abandoned);
  return found == entries_.end() ? nullptr : &*found;
}

const SweepWindow::Entry& SweepWindow::hold() {
  check(!held_ && wanted() != nullptr && wanted()->state == State::ready,
        "compute takes a tile that is not there");
  Entry& e = *std::ranges::find(entries_, false, &Entry::abandoned);
  held_ = e;
  e.abandoned = true;  // without free_memory(): its memory is compute's now
  drop_abandoned();
  return *held_;
}

void SweepWindow::let_go() {
  if (held_) free_memory(*std::exchange(held_, std::nullopt));
}

}  // namespace sluice
