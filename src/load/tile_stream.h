// The parameters that do not stay in memory, read again by every sweep over the model.
//
// The compute thread also drives the reads: each time it wants a tile it takes in what has arrived
// and submits as many reads as there are slots, so that the disk has work while it computes. No
// other thread is between the disk and compute. Workers encode stored tiles, a few ahead of
// compute; where they are late compute encodes by itself. Codes of the spill cache are used in the
// slot where they arrived, all tiles of a read at once. Reads stop before parameters that only some
// tokens use until the step's router has chosen, and pass over those that it has not, or that the
// cache of experts has: compute uses these while the others arrive. On a device with memory of its
// own the tile buffers are there: a tile is encoded on its way, and a buffer is reused when the
// device is done with it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/load/expert_cache.h"
#include "src/load/fetcher.h"
#include "src/load/row_lookup.h"
#include "src/load/streamer.h"
#include "src/load/sweep_window.h"
#include "src/memory/buffer.h"
#include "src/nn/weight_stream.h"
#include "src/plan/sweep.h"

namespace sluice {

// Seconds that were lost with one unit, and to what.
struct UnitStalls {
  uint64_t bytes = 0;  // read for it
  double disk = 0;     // compute waited for bytes
  double copy = 0;     // compute waited while bytes were encoded
  // Time of compute after all reads had arrived: the disk may have waited, at most so long.
  double compute = 0;
};

struct StreamReport {
  io::ReaderStats io;
  uint64_t tiles_used = 0;
  uint64_t spilled_bytes = 0;  // part of the bytes read, from the spill cache
  uint64_t host_bytes = 0;     // copied from host memory to a device
  ExpertCounts experts;
  ExpertReuse reuse;  // of the last stream
  // Bytes read by a pass, where routers choose: the median of the last ones; 0: not known.
  uint64_t pass_bytes = 0;
  std::vector<UnitStalls> units;                        // one for each unit of the plan
  double wait_seconds() const;                          // seconds that compute waited for tiles
  StreamReport& operator+=(const StreamReport& later);  // of the same units
};

// One thread at a time calls it.
class TileStream final : public WeightStream {
 public:
  // During its lifetime the plan's streamed parameters come from this stream. The load before wrote
  // `measured`. When `stop` is requested, a wait for a tile throws Error(runtime). All arguments
  // outlive it.
  TileStream(const ReadPlan& plan, const io::CheckpointIndex& index, Device& device,
             const Encoder& encoder, Ledger& ledger, Measured& measured, LoadOptions options,
             std::stop_token stop);
  ~TileStream() override;
  TileStream(const TileStream&) = delete;
  TileStream& operator=(const TileStream&) = delete;

  WeightTile tile(const Param& param, int64_t row, DeviceStream& stream) override;
  void expect(const Param& param, bool is_wanted) override;
  bool is_at_hand(const Param& param) override;
  void embed(const Param& table, std::span<const int32_t> ids, Tensor out,
             DeviceStream& stream) override;

  StreamReport report() const;
  // Adds the encoding errors of the streamed tensors, once a sweep has met them all.
  void add_stats(LoadReport& report) const;

 private:
  using Clock = std::chrono::steady_clock;

  Fetcher::Ring ring(const SpillLayout* packed);
  void open();
  std::optional<uint32_t> next_tile();
  size_t most_in_flight() const;
  void submit();
  void encode_arrived();
  // Return false where a source has failed: the next await() opens what remains.
  [[nodiscard]] bool receive(const Fetcher::Arrival& arrival);
  [[nodiscard]] bool poll();
  [[nodiscard]] bool take_encoded(bool block);
  [[nodiscard]] bool pump();
  [[nodiscard]] bool await(uint32_t tile);
  [[nodiscard]] bool use(uint32_t tile);
  void let_go(DeviceStream& stream);
  void choose_experts();
  void give_place(uint32_t tile, Fetch& fetch) const;
  void note_pass(uint32_t first_tile);
  void skip(std::span<const TiledTensor> tensors);
  bool is_to_exchange(const SweepWindow::Entry& entry) const;
  [[nodiscard]] bool exchange(const SweepWindow::Entry& entry);
  void note_stats(const SweepWindow::Entry& entry);
  void note_waits(const SweepWindow::Entry& entry, double start);

  // The choice of a router, as far as it concerns the next round's read of a tensor.
  enum class Choice : uint8_t { open, wanted, unwanted };
  Choice& choice_of(const TiledTensor& tensor);
  bool is_routed(const TiledTensor& tensor) const;
  bool may_be_last(const SweepWindow::Entry& held) const;

  uint32_t tile_index(const Param& param, int64_t row) const;
  std::byte* buffer_memory(uint32_t buffer) const;
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  const bool has_own_memory_;  // the device
  LoadOptions options_;
  std::stop_token stop_;
  Lease lists_;  // of the next one, and of stats_
  std::unordered_map<const Param*, std::span<const TiledTensor>> tensors_of_;
  Clock::time_point start_ = Clock::now();

  Buffer memory_;  // the ring, then tile buffers where these are not the device's
  std::unique_ptr<Pinned> pinned_;
  Buffer tiles_;  // the tile buffers, where the device has memory of its own
  std::vector<std::unique_ptr<DeviceEvent>> used_;  // of each buffer: the device is done with it
  uint32_t buffers_ = 0;                            // in use, of them
  Fetcher::Ring ring_;
  bool exchanges_;                  // rows with other ranks
  std::span<std::byte> exchanged_;  // of memory_: what is sent, and what is received

  SweepWindow window_;
  Weight held_;         // all of what the window holds for compute
  double left_at_ = 0;  // when compute got it [s]
  ExpertCache experts_;
  // Bytes read by each of the last passes, in turn, and of the one that goes on.
  std::array<uint64_t, 15> pass_bytes_ = {};
  size_t passes_ = 0;
  uint64_t read_ = 0;
  std::optional<uint32_t> last_expected_;  // first tile of a parameter
  RowLookup rows_;
  StreamReport report_;
  // The state of each tensor of the sweep; its encoding errors are counted once, in the order of
  // its tiles.
  struct TensorStats {
    uint32_t tiles = 0;
    Choice choice = Choice::open;
    EncodeStats sum;
  };
  static_assert(sizeof(TensorStats) <= kTileStatsBytes);
  std::vector<TensorStats> stats_;

  Fetcher fetcher_;  // last: ends first
};

}  // namespace sluice
