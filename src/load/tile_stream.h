// The parameters that do not stay in memory, read again by every sweep over the model.
//
// A thread of its own keeps the disk busy: it reads the tiles of the sweep in their order, round
// and round, and waits only when all its memory holds tiles that nobody has used yet. So compute
// waits for the disk or the disk for compute, never both. A tile from the checkpoint is encoded
// from its slot into a tile buffer; one from the spill cache is used in the slot where it arrived.
// As such tiles are small and lie one after the other, one read brings as many as a slot holds.
// With a device that has memory of its own the buffers are there, and a tile is encoded on its way;
// a buffer is written to again when the device is done with it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/reader.h"
#include "io/sources.h"
#include "src/load/encode_queue.h"
#include "src/load/streamer.h"
#include "src/memory/buffer.h"
#include "src/nn/weight_stream.h"
#include "src/plan/sweep.h"

namespace sluice {

// Seconds that were lost with one unit, and to what.
struct UnitStalls {
  uint64_t bytes = 0;  // read for it
  double disk = 0;     // compute waited for bytes
  double copy = 0;     // compute waited while bytes were encoded
  double compute = 0;  // the disk waited: all memory held tiles that compute had not used yet
};

struct StreamReport {
  io::ReaderStats io;
  uint64_t tiles_used = 0;
  uint64_t spilled_bytes = 0;                           // of what was read, from the spill cache
  uint64_t host_bytes = 0;                              // copied from host memory to a device
  std::vector<UnitStalls> units;                        // of the plan
  double wait_seconds() const;                          // that compute spent waiting for a tile
  StreamReport& operator+=(const StreamReport& later);  // of the same units
};

class TileStream final : public WeightStream {
 public:
  // From here to its end the streamed parameters of the plan come from this stream. `amax`: what
  // the load found (LoadReport::amax). When `stop` is requested, whoever waits for a tile gets
  // Error(runtime). All arguments outlive it.
  TileStream(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
             const Encoder& encoder, Ledger& ledger, std::span<const float> amax,
             LoadOptions options, std::stop_token stop);
  ~TileStream() override;
  TileStream(const TileStream&) = delete;
  TileStream& operator=(const TileStream&) = delete;

  WeightTile tile(const Param& param, int64_t row, DeviceStream& stream) override;
  void embed(const Param& table, std::span<const int32_t> ids, Tensor out,
             DeviceStream& stream) override;

  StreamReport report() const;
  // What encoding did to the streamed tensors, once a sweep has met them all.
  void add_stats(LoadReport& report) const;

 private:
  using Clock = std::chrono::steady_clock;

  // A tile in memory or on its way there, in the order in which tiles were asked from the disk.
  struct Entry {
    uint32_t tile = 0;               // of plan.sweep
    std::optional<uint32_t> buffer;  // that it is encoded into; none: it stays in its slot
    uint32_t tiles = 1;              // without a buffer: of its read
    uint64_t offset = 0;             // and where its codes lie in the read
    uint64_t length = 0;
    io::ReadResult slot;  // likewise, once it has arrived
    uint32_t file = 0;    // that it is read from, of sources_
    Clock::time_point arrived;
    EncodeStats stats;  // with a buffer, once it is ready
    bool ready = false;
    bool abandoned = false;  // not wanted any more; its memory is free once the disk is done
  };

  // Of the reading thread.
  void read_tiles(const std::stop_token& stop);
  void read_some(const std::stop_token& stop);
  void open_reader();
  void start_over(const std::stop_token& stop);
  void submit_reads();
  void add_entry(const Entry& first, uint32_t i, const io::ReadRequest& request);
  void receive();
  void wait_for_memory(const std::stop_token& stop);

  bool spill_ready() const { return options_.spill != nullptr && options_.spill->ready(); }
  bool is_spilled(uint32_t tensor) const;
  uint32_t tiles_of_read(uint32_t first) const;
  Spill::Extent extent(uint32_t first, uint32_t tiles) const;
  uint32_t tile_index(const Param& param, int64_t row) const;
  std::byte* buffer_memory(uint32_t buffer) const;
  std::mutex& mutex() const { return signal_.mutex; }

  // With mutex() held.
  void let_go(DeviceStream& stream);
  void mark_finished();
  void seek(uint32_t tile);
  void free_memory(const Entry& entry);
  void await(std::unique_lock<std::mutex>& lock, uint32_t tile);
  Entry take_front();
  void note_stats(const Entry& entry);

  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  const Encoder& encoder_;
  LoadOptions options_;
  std::stop_token stop_;
  std::vector<float> amax_;
  std::unordered_map<const Param*, std::span<const TiledTensor>> tensors_of_;
  uint64_t slots_bytes_ = 0;  // of memory_, before the tile buffers
  Buffer memory_;  // slots, then tile buffers; slots only when all tiles come from the spill
  std::unique_ptr<Pinned> pinned_;
  Buffer tiles_;  // the tile buffers, where the device has memory of its own
  std::vector<std::unique_ptr<DeviceEvent>> used_;  // of each buffer: the device is done with it

  // Of the thread that computes.
  void open_lookup_reader();
  bool embed_rows(const Param& table, std::span<const int32_t> ids, Tensor out,
                  DeviceStream& stream);
  bool decode_looked_up(uint32_t tensor, const io::ReadResult& read, int32_t id, float* out);
  Buffer lookup_;
  uint64_t lookup_tile_ = 0;  // where in it the encoded rows lie, behind the slots
  uint64_t lookup_row_ = 0;   // and a decoded row, behind these
  std::unique_ptr<Encoder> lookup_encoder_;
  uint64_t lookup_slot_bytes_ = 0;
  io::Sources lookup_sources_;
  std::unique_ptr<io::Reader> lookup_reader_;
  bool lookup_spill_ = false;  // the reader has the spill's file
  io::ReaderStats lookup_io_;  // of readers before it

  // Of the reading thread.
  std::unique_ptr<io::Reader> reader_;
  io::Sources sources_;
  bool start_over_ = true;   // with another reader, or the first
  uint64_t slot_bytes_ = 0;  // of the reader
  size_t reads_in_flight_ = 0;
  io::ReaderStats past_io_;  // of readers before this one

  mutable Signal signal_;  // its mutex guards everything below
  size_t encoding_ = 0;
  bool reads_spill_ = false;  // the reader has the spill's file
  std::vector<uint32_t> free_buffers_;
  std::vector<uint32_t> slot_users_;      // of each slot: its tiles that are still needed
  std::vector<io::ReadResult> returned_;  // slots that nobody needs any more
  uint64_t first_id_ = 0;                 // of entries_.front(): ids count entries
  std::deque<Entry> entries_;             // in the order of the reads
  uint32_t next_tile_ = 0;                // to be read
  uint32_t current_unit_ = 0;             // that compute is at
  std::optional<Entry> held_;             // what compute uses
  StreamReport report_;
  // Of the tensors of the sweep, in the order of their tiles, however often these come.
  struct TensorStats {
    uint32_t tiles = 0;
    EncodeStats sum;
  };
  std::vector<TensorStats> stats_;
  std::exception_ptr failure_;

  std::unique_ptr<EncodeQueue> queue_;  // its workers notify signal_
  std::jthread thread_;                 // last: ends first
};

}  // namespace sluice
