// A model whose weights are in memory, or pass through it: what a placed model becomes. It can be
// emptied and filled again in place, with the weights of another checkpoint of the same shape or by
// another plan, while whoever runs it keeps its runner.
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
  io::ReadShape read = {};  // that the disk is asked with
  bool try_shapes = false;  // whether a load looks for a better one
  SpillOptions spill;       // for what is streamed
  SpillKey spill_key;
  std::optional<double> max_quant_error;
  int64_t scheduler_slice = 0;  // to ask for while weights stream [microseconds]; 0: none
};

class LoadedModel {
 public:
  // Empty. Model, backend, pool, ledger and timeline outlive it.
  LoadedModel(CausalLM& root, Backend& backend, ThreadPool& pool, Ledger& ledger,
              DiskTimeline& timeline);
  LoadedModel(const LoadedModel&) = delete;

  // Of an empty one, the weights that `index` has of the placed model. Whatever is thrown, it is
  // empty then, and runner() and steps say so. `index` lives until it is emptied.
  void fill(std::shared_ptr<const Placed> placed, const io::CheckpointIndex& index,
            const FillOptions& options, LoadProgress& progress, const std::stop_token& stop);
  // Returns the weights to meta and their memory to the system. The runner keeps its own memory;
  // what its blocks hold is not found again, and no sequence may have any.
  void empty();
  bool filled() const { return filled_; }
  // Between steps: goes on by a plan that leaves less of the weights in memory.
  void shrink(std::shared_ptr<const Placed> placed);

  const Placed& placed() const { return *placed_; }
  const LoadReport& report() const { return report_; }
  // None when everything was resident all along.
  std::optional<StreamReport> stream_report() const;
  const Spill* spill() const { return spill_.get(); }  // null: nothing is streamed, or without one
  // What was asked for all threads; nothing where no weights stream. A thread that only computes
  // would be interrupted more often for it: resident decode beside a busy program loses a quarter.
  SchedulerSlice scheduler_slice() const { return slice_; }

  // The memory to run, as placed: kept over empty() and fill(). Error(runtime) where it is empty.
  Runner& make_runner(const BlockCosts& costs);
  Runner* runner();  // null: not made yet
  void release();    // the runner's memory, too

 private:
  void fill_all(const FillOptions& options, LoadProgress& progress);
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
  std::stop_token stop_;  // of the load, and of the stream after it
  Measured measured_;
  LoadReport report_;
  SchedulerSlice slice_;
  Buffer encoder_memory_;  // of the device
  Buffer encoder_host_;
  std::unique_ptr<Pinned> encoder_pinned_;
  std::unique_ptr<Encoder> encoder_;
  std::shared_ptr<const Placed> spilled_;  // that spill_ works by
  std::unique_ptr<Spill> spill_;
  std::vector<Resident> residents_;
  std::unique_ptr<TileStream> stream_;     // from disk
  std::unique_ptr<HostTiles> host_tiles_;  // and from host memory
  StreamReport past_streams_;              // before the last shrink()
  std::unique_ptr<Runner> runner_;
};

}  // namespace sluice
