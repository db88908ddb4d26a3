// The tiles of a sweep that are in memory or in flight, and the use of that memory. A state machine
// without I/O and threads, whose decisions TileStream carries out.
//
// Tiles are read in the order of the sweep, round and round. A read occupies a slot. Packed tiles
// are used in their slot. Other tiles are encoded, or copied, into a buffer, which frees the slot;
// the reads that compute needs next get the buffers, so that it never waits for one. A tile whose
// fetch says where it goes has a place of its own, and needs no buffer.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "io/reader.h"
#include "src/load/fetch.h"

namespace sluice {

class SweepWindow {
 public:
  enum class State : uint8_t {
    reading,
    partial,   // some rows are in its slot, and other ranks have the rest
    arrived,   // in its slot, to be encoded
    encoding,  // from its slot into its buffer
    ready,     // in its slot if packed, else in its buffer
  };
  struct Entry {
    Fetch fetch;
    uint32_t first = 0;  // tile, of `tiles` that follow one another
    uint32_t tiles = 1;
    State state = State::reading;
    bool abandoned = false;  // compute will not use it; its memory is or will be free
    bool skipped = false;    // not read, and compute is not past it; abandoned, too
    io::ReadResult read;     // once it has arrived
    double arrived = 0;      // when [s]
    std::optional<uint32_t> buffer;
    EncodeStats stats;  // once it is encoded

    bool has(uint32_t tile) const { return first <= tile && tile - first < tiles; }
    bool is_packed() const { return fetch.form == Fetch::Form::packed && !fetch.copied; }
    bool has_place() const { return fetch.has_tile() && !buffer; }
  };

  explicit SweepWindow(uint32_t tiles) : tiles_(tiles) {}  // of the sweep
  // Forgets everything held or in flight, all of which has ended. Reading goes on with the first
  // tile that compute has not used.
  void restart(uint32_t buffers);

  // The next tile to be read; none while the whole sweep is held or skipped.
  std::optional<uint32_t> next() const;
  // Notes that `read`, of tiles from next() on, is submitted. Returns its fetch, with a
  // tag.
  const Fetch& add(const TileFetch& read);
  // Passes over `tiles` from next() on, at most to the end of the sweep: this round does not read
  // them, unless compute wants one after all.
  void skip(uint32_t tiles);
  // Compute is past what was skipped before the first read that it has not had.
  void pass_skipped();
  void arrived(const io::ReadResult& read, double now);
  // Compute's next read, which was partial, has all of its rows now.
  void complete(const io::ReadResult& read);
  // An arrived stored read, which gets a buffer now, or has a place; null: no such read, or no free
  // buffer.
  Entry* next_to_encode();
  void encoded(uint64_t tag, const EncodeStats& stats);
  // Has compute use no tile that has a place, and is not held: these places are about to be
  // others'. Returns whether some of them are still written to.
  bool leave_places();
  // Slots that are no longer needed, each once.
  std::vector<io::ReadResult> take_freed();

  // Compute wants `tile`, then those that follow: drops reads that it will not use. Nothing is
  // held.
  void seek(uint32_t tile);
  // The first read that compute has not had; null: nothing is held or in flight.
  const Entry* wanted() const;
  // Gives it to compute, once it is ready; until let_go() its memory stays as it is.
  const Entry& hold();
  const Entry* held() const { return held_ ? &*held_ : nullptr; }
  void let_go();

 private:
  Entry& entry(uint64_t tag) { return entries_[tag - first_tag_]; }
  void abandon(Entry& e);
  void free_memory(const Entry& e);
  void drop_abandoned();

  uint32_t tiles_;
  uint32_t next_ = 0;
  uint64_t first_tag_ = 0;     // of entries_.front(): tags count reads
  std::deque<Entry> entries_;  // in the order of the reads
  std::optional<Entry> held_;
  std::vector<uint32_t> free_buffers_;
  uint32_t buffers_ = 0;
  std::vector<io::ReadResult> freed_;
};

}  // namespace sluice
