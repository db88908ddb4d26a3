// A placed model whose weights are resident or streamed. It can be emptied and filled again in
// place, with the weights of another checkpoint of the same shape or by another plan, while its
// user keeps its runner.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/scheduler_slice.h"
#include "src/base/thread_pool.h"
#include "src/engine/placed.h"
#include "src/engine/runner.h"
#include "src/load/host_tiles.h"
#include "src/load/streamer.h"
#include "src/load/tile_stream.h"

namespace sluice {

struct FillOptions {
  io::ReaderKind reader = io::ReaderKind::automatic;
  io::ReadShape read = {};  // read shape for the disk
  bool try_shapes = false;  // whether a load tries other shapes
  SpillOptions spill;       // spill cache of streamed weights
  SpillKey spill_key;
  std::optional<double> max_quant_error;
  int64_t scheduler_slice = 0;  // requested while weights stream [microseconds]; 0: none
  Buffer::Touch touch = Buffer::Touch::now;  // of the memory to run
  LoadingRanks* ranks = nullptr;             // that load together; null: one alone
  const io::SystemCalls* calls = nullptr;    // of reads, for tests; null: the real ones
};

class ModelWeights {
 public:
  // Empty. Model, backend, pool, ledger and timeline outlive it.
  ModelWeights(CausalLM& root, Backend& backend, ThreadPool& pool, Ledger& ledger,
               DiskTimeline& timeline);
  ModelWeights(const ModelWeights&) = delete;

  // Fills an empty model with the weights of the placed model that `index` has. After any exception
  // it is empty, and runner() and steps fail with the reason. `index` lives until it is emptied.
  void fill(std::shared_ptr<const Placed> placed, const io::CheckpointIndex& index,
            const FillOptions& options, LoadProgress& progress, const std::stop_token& stop);
  // Returns the weights to meta and their memory to the system. The runner keeps its memory; its KV
  // blocks are forgotten, and no sequence may hold any.
  void empty();
  bool filled() const { return filled_; }
  // Between steps: goes on by a plan that leaves less of the weights in memory.
  void shrink(std::shared_ptr<const Placed> placed);

  const Placed& placed() const { return *placed_; }
  const LoadReport& report() const { return report_; }
  // None when everything was resident all along.
  std::optional<StreamReport> stream_report() const;
  const Spill* spill() const { return spill_.get(); }  // null: nothing is streamed, or without one
  // The slice requested for all threads; none where no weights stream, because it interrupts
  // threads that only compute: resident decode beside a busy program would lose a quarter.
  SchedulerSlice scheduler_slice() const { return slice_; }

  // Makes the runner, which outlasts empty(). Error(runtime) where the model is empty.
  Runner& make_runner(const BlockCosts& costs, const RankGroups& groups);
  Runner* runner();  // null: not made yet
  void release();    // the runner's memory, too

 private:
  void fill_all(const FillOptions& options, LoadProgress& progress);
  void write_needed_spill();
  void make_encoder();
  LoadOptions load_options() const;
  void open_streams();
  void measure_streamed();
  void give_back();
  std::string emptiness() const;
  [[noreturn]] void fail_empty() const;

  CausalLM& root_;
  Backend& backend_;
  ThreadPool& pool_;
  Ledger& ledger_;
  DiskTimeline& timeline_;
  bool filled_ = false;
  std::string fault_;  // why the last fill() failed
  std::shared_ptr<const Placed> placed_;
  const io::CheckpointIndex* index_ = nullptr;
  FillOptions options_;
  std::stop_token stop_;                // of the load, and of the stream after it
  const Group* sweep_ranks_ = nullptr;  // that sweeps exchange rows with
  Measured measured_;
  LoadReport report_;
  SchedulerSlice slice_;
  Buffer encoder_memory_;  // of the device
  Buffer encoder_host_;
  std::unique_ptr<Pinned> encoder_pinned_;
  std::unique_ptr<Encoder> encoder_;
  std::shared_ptr<const Placed> spilled_;  // the plan of spill_
  std::unique_ptr<Spill> spill_;
  std::vector<Resident> residents_;
  std::unique_ptr<TileStream> stream_;     // from disk
  std::unique_ptr<HostTiles> host_tiles_;  // and from host memory
  StreamReport past_streams_;              // before the last shrink()
  std::unique_ptr<Runner> runner_;
};

}  // namespace sluice
