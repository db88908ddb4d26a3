// The one place that submits reads of weights. A fetcher has the reader, the choice among copies of
// a file and the encoding workers; its user has the order of fetches.
//
// A source may fail: a file cannot be read, or codes of the spill cache are damaged. If a fallback
// has the same bytes, or the cache can be written again, the fetcher warns and drops everything in
// flight. The next result says so, and the user opens the fetcher again and makes a new order.
// Without a fallback the fetcher throws the Error, with nothing in flight: its user may open it
// again.
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
#include "io/system_calls.h"
#include "src/load/disk_timeline.h"
#include "src/load/encode_queue.h"
#include "src/load/fetch.h"
#include "src/load/spill.h"

namespace sluice {

class Group;
class LoadingRanks;

struct LoadOptions {
  io::ReaderKind reader = io::ReaderKind::automatic;
  int threads = 1;  // encoding workers
  Spill* spill = nullptr;
  DiskTimeline* timeline = nullptr;
  io::ReadShape read = {};                 // read shape of the disk
  bool try_shapes = false;                 // whether a load tries other shapes
  LoadingRanks* ranks = nullptr;           // that a load reads with; null: it reads alone
  const Group* sweep_ranks = nullptr;      // that a sweep exchanges rows with; null: none
  const io::SystemCalls* calls = nullptr;  // of the reader, for tests; null: the real ones
};

// Everything referred to outlives the fetcher.
struct FetcherSetup {
  const ReadPlan& plan;
  const io::CheckpointIndex& index;
  const Encoder& encoder;
  Device* device = nullptr;         // of the encoder; null: the host
  std::span<const Weight> weights;  // of each parameter; empty where all fetches have tiles
  Measured& measured;
  LoadOptions options;
  bool fills_spill = true;             // encoded rows are added to the spill cache
  std::span<std::byte> row_amax = {};  // of plan.row_amax, for spans of the load
};

class Fetcher {
 public:
  explicit Fetcher(const FetcherSetup& setup);

  // Memory in which reads arrive; equal slots, aligned for O_DIRECT.
  struct Ring {
    std::span<std::byte> memory;
    uint64_t slot_bytes = 0;
    uint64_t request_bytes = 0;  // of a system-level read
  };
  // Opens the sources that are usable now. Drops what was in flight. The memory is the fetcher's
  // until close().
  void open(const Ring& ring);
  // Ends everything in flight: afterwards nothing writes to the ring or to tiles.
  void close();
  // True before open(), after a source has failed, and when the spill cache has become ready or
  // unusable.
  bool is_outdated() const { return reader_ == nullptr || (packed_ != nullptr) != spill_ready(); }
  // The index of the spill cache; null when this reader does not read from it.
  const SpillLayout* packed() const { return packed_ ? &packed_->layout() : nullptr; }

  // None after a source has failed.
  int free_slots() const { return reader_ ? reader_->free_slots() : 0; }
  size_t in_flight() const { return in_flight_.size(); }
  // Needs a free slot, for all planes. `request_bytes`: of its system-level reads, or 0 for the
  // ring's. A source that fails here is reported by the next result.
  void submit(const Fetch& fetch, uint64_t request_bytes = 0);

  struct Arrival {
    enum class Kind : uint8_t {
      nothing,    // no read has arrived
      read,       // with the fetch's tag
      restarted,  // a source has failed: nothing is in flight any more
    };
    Kind kind = Kind::nothing;
    io::ReadResult read = {};
  };
  // The next arrived read. poll() does not wait; wait() needs one in flight, and brings one unless
  // a source fails.
  [[nodiscard]] Arrival poll();
  [[nodiscard]] Arrival wait();
  // Queues an arrived fetch to be encoded, or copied to its destination.
  void encode(const Fetch& fetch, const io::ReadResult& read);
  // Finished fetches, as EncodeQueue::take_finished; nullopt where a source has failed.
  [[nodiscard]] std::optional<std::vector<ArrivedFetch>> take_encoded(bool block);
  // A view of arrived codes of the spill cache in their slot, checked, valid until release();
  // nullopt where they are damaged.
  [[nodiscard]] std::optional<Weight> in_place(const Move& move, const io::ReadResult& read);
  void release(const io::ReadResult& read) { reader_->release(read); }

  // Statistics since the fetcher was made.
  io::ReaderStats stats() const;
  const io::Reader& reader() const { return *reader_; }
  EncodeQueue& queue() { return *queue_; }

 private:
  struct InFlight {
    uint64_t tag = 0;
    uint32_t source = 0;     // of sources_.files()
    OtherExtents more = {};  // whose files are sources, too
  };

  bool spill_ready() const { return setup_.options.spill && setup_.options.spill->ready(); }
  Arrival arrived(const io::ReadResult& read);
  void fall_back(const io::ReadError& error);
  template <class Body>
  bool guarded(const Body& body);

  const FetcherSetup setup_;
  io::Sources sources_;
  const Spill* packed_ = nullptr;
  std::unique_ptr<io::Reader> reader_;
  std::vector<InFlight> in_flight_;
  io::ReaderStats past_;                // of readers before this one
  std::unique_ptr<EncodeQueue> queue_;  // ends before the reader
};

}  // namespace sluice
