// The one place that reads weights. A fetcher has the reader, the choice among a file's copies and
// the workers that encode; whoever uses it has the order of its fetches.
//
// A source may fail: a file cannot be read, or codes of the spill cache are damaged. Where there is
// another way to the same bytes the fetcher warns, drops all that is under way and throws Restart:
// whoever uses it opens it again and makes its order anew. Where there is none it throws the Error.
//
// One thread at a time calls a fetcher.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/read_shape.h"
#include "io/reader.h"
#include "io/sources.h"
#include "src/load/disk_timeline.h"
#include "src/load/encode_queue.h"
#include "src/load/fetch.h"
#include "src/load/spill.h"

namespace sluice {

struct LoadOptions {
  io::ReaderKind reader = io::ReaderKind::automatic;
  int threads = 1;  // that encode
  Spill* spill = nullptr;
  DiskTimeline* timeline = nullptr;
  io::ReadShape read = {};  // of the disk
  bool try_shapes = false;  // whether a load looks for a better one
};

// All of it outlives the fetcher.
struct FetcherSetup {
  const ReadPlan& plan;
  const io::CheckpointIndex& index;
  const Encoder& encoder;
  std::span<const Weight> weights;  // of each parameter; empty where all fetches have tiles
  Measured& measured;
  LoadOptions options;
  bool fills_spill = true;             // what it encodes is given to the spill cache
  std::span<std::byte> row_amax = {};  // of plan.row_amax, for spans of the load
};

class Fetcher {
 public:
  struct Restart {};

  explicit Fetcher(const FetcherSetup& setup);

  // What reads arrive in; equal slots, aligned for O_DIRECT.
  struct Ring {
    std::span<std::byte> memory;
    uint64_t slot_bytes = 0;
    uint64_t request_bytes = 0;  // of a system-level read
  };
  // Opens the sources that there are now. What was under way is dropped.
  void open(const Ring& ring);
  // The end of what is under way: afterwards nothing writes to the ring, nor to tiles.
  void close();
  // True before open(), after Restart, and when the spill cache has become ready or useless since.
  bool is_outdated() const { return reader_ == nullptr || (packed_ != nullptr) != spill_ready(); }
  // The index of what is in the spill cache; null when this reader does not read from it.
  const SpillLayout* packed() const { return packed_ ? &packed_->layout() : nullptr; }

  int free_slots() const { return reader_->free_slots(); }
  size_t in_flight() const { return in_flight_.size(); }
  // Needs a free slot. `request_bytes`: of its system-level reads, or 0 for the ring's.
  void submit(const Fetch& fetch, uint64_t request_bytes = 0);
  // What has arrived: its tag is the fetch's. poll() does not wait; wait() needs a read in flight.
  std::optional<io::ReadResult> poll();
  io::ReadResult wait();
  // Has an arrived fetch encoded, or copied to where its parameter lies.
  void encode(const Fetch& fetch, const io::ReadResult& read);
  // What became of them, as EncodeQueue::take_finished.
  std::vector<ArrivedFetch> take_encoded(bool block);
  // Or uses arrived codes of the spill cache where they are, until release().
  Weight in_place(const Move& move, std::span<const std::byte> codes);
  void release(const io::ReadResult& read) { reader_->release(read); }

  // Since the fetcher was made.
  io::ReaderStats stats() const;
  const io::Reader& reader() const { return *reader_; }
  const EncodeQueue& queue() const { return *queue_; }

 private:
  struct InFlight {
    uint64_t tag = 0;
    uint32_t source = 0;  // of sources_.files()
  };

  bool spill_ready() const { return setup_.options.spill && setup_.options.spill->ready(); }
  io::ReadResult arrived(const io::ReadResult& read);
  void fall_back(const io::ReadError& error);
  template <class Body>
  auto guarded(const Body& body);

  const FetcherSetup setup_;
  io::Sources sources_;
  const Spill* packed_ = nullptr;
  std::unique_ptr<io::Reader> reader_;
  std::vector<InFlight> in_flight_;
  io::ReaderStats past_;                // of readers before this one
  std::unique_ptr<EncodeQueue> queue_;  // ends before the reader
};

}  // namespace sluice
