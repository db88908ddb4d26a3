// The parameters that do not stay in memory, read again by every sweep over the model.
//
// A thread of its own keeps the disk busy: it reads the tiles of the sweep in their order, round
// and round, has them encoded into a ring of tile buffers, and waits only when all of them hold
// tiles that nobody has used yet. So compute waits for the disk or the disk for compute, never
// both.
#pragma once

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
#include "src/load/encode_queue.h"
#include "src/load/streamer.h"
#include "src/memory/buffer.h"
#include "src/nn/weight_stream.h"
#include "src/plan/sweep.h"

namespace sluice {

struct StreamReport {
  io::ReaderStats io;
  uint64_t tiles_used = 0;
  double wait_seconds = 0;  // that compute spent waiting for a tile
};

class TileStream final : public WeightStream {
 public:
  // From here to its end the streamed parameters of the plan come from this stream. `amax`: what
  // the load found (LoadReport::amax). All arguments outlive it.
  TileStream(const ReadPlan& plan, const io::CheckpointIndex& index, const Kernels& encoder,
             Ledger& ledger, std::span<const float> amax, LoadOptions options);
  ~TileStream() override;
  TileStream(const TileStream&) = delete;
  TileStream& operator=(const TileStream&) = delete;

  WeightTile tile(const Param& param, int64_t row) override;
  void embed(const Kernels& kernels, const Param& table, std::span<const int32_t> ids,
             Tensor out) override;

  StreamReport report() const;
  // What encoding did to the streamed tensors, once a sweep has met them all.
  void add_stats(LoadReport& report) const;

 private:
  // A tile buffer in use, in the order in which tiles were asked from the disk.
  struct Entry {
    uint32_t tile = 0;  // index into plan.sweep
    uint32_t buffer = 0;
    bool ready = false;
    bool abandoned =
        false;  // not wanted any more; its buffer is free once the disk is done with it
  };

  void read_tiles(std::stop_token stop);
  void submit_reads();
  void take_finished(bool block);
  uint32_t tile_index(const Param& param, int64_t row) const;
  void seek(uint32_t tile);  // with mutex_ held
  std::byte* memory(uint32_t buffer) { return tiles_.data() + buffer * plan_.tile_bytes; }

  const ReadPlan& plan_;
  const Kernels& encoder_;
  std::unordered_map<const Param*, std::pair<uint32_t, uint32_t>> tiles_of_;  // [first, end)
  Buffer staging_;
  Buffer tiles_;
  Buffer lookup_;
  uint64_t lookup_tile_ = 0;  // where in it the encoded rows lie, behind the slots
  std::unique_ptr<io::Reader> lookup_reader_;
  std::vector<float> amax_;

  // Of the reading thread.
  std::unique_ptr<io::Reader> reader_;
  std::unique_ptr<EncodeQueue> queue_;
  size_t reads_in_flight_ = 0;
  size_t encoding_ = 0;

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable_any changed_;
  std::vector<uint32_t> free_buffers_;
  uint64_t first_id_ = 0;         // of entries_.front(): ids count reads
  std::deque<Entry> entries_;     // in the order of the reads
  uint32_t next_tile_ = 0;        // to be read
  std::optional<uint32_t> held_;  // the buffer that compute uses
  StreamReport report_;
  std::exception_ptr failure_;

  std::jthread thread_;  // last: ends first
};

}  // namespace sluice
