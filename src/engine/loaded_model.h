// A placed model in memory, ready to run: its weights, and its runner once that is asked for. It
// can be given up and loaded again, shrunk, and filled with other weights of the same shape.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "src/engine/model_weights.h"
#include "src/engine/planner.h"
#include "src/engine/step_data.h"

namespace sluice {

// A rank's part of a run.
struct RankShare {
  uint64_t bytes_read = 0;      // by its load
  uint64_t bytes_streamed = 0;  // by its passes
  uint64_t weights = 0;         // in memory [bytes]
  Share layers;                 // of which it has a part, or all
};

class LoadedModel {
 public:
  // Loads the weights as placed by `planner`, which outlives this; a draft model before its target.
  // `progress` may be null.
  LoadedModel(Planner& planner, std::shared_ptr<const Placed> placed, std::stop_token stop = {},
              LoadProgress* progress = nullptr);
  ~LoadedModel() { release(); }
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  Planner& planner() const { return planner_; }
  std::shared_ptr<const Placed> placed() const { return placed_; }
  const MemoryPlan& memory_plan() const { return placed_->memory; }
  const ReadPlan& read_plan() const { return *placed_->read; }
  // Peak of the whole process, draft models included, and of the device [bytes].
  uint64_t predicted_peak() const { return std::max(past_peak_, memory_plan().peak()); }
  uint64_t predicted_device_peak() const { return memory_plan().device.peak(); }

  const LoadReport& report() const { return weights_.report(); }
  std::optional<StreamReport> stream_report() const { return weights_.stream_report(); }
  const Spill* spill() const { return weights_.spill(); }
  SchedulerSlice scheduler_slice() const { return weights_.scheduler_slice(); }
  // Each rank's part, so far; nothing for one rank. Rank 0 asks the others, between steps.
  std::vector<RankShare> rank_shares() const;

  // The memory to run, as placed; made by the first call.
  Runner& runner();
  // A file for the keys and values of a prompt of `prompt_tokens`. Error(refused) where `path` is
  // another file.
  PromptCache prompt_cache(const std::filesystem::path& path, int64_t prompt_tokens);
  // Remembers the rates that a run observed, from the median seconds of its passes of a few rows;
  // 0: there were none. (A load remembers its own.)
  void learn_pass(double seconds);

  // Between steps: evicts weights to go on within a smaller budget; reload() loads as many. A
  // budget that is too small is met as closely as possible, with a warning.
  void shrink(uint64_t budget);
  // Shrinks where the cgroup's limit has been lowered since the last call.
  void follow_cgroup();
  // Gives up the weights and the runner's memory; reload() loads again, as placed.
  void release();
  void reload(const std::stop_token& stop, LoadProgress* progress = nullptr);
  bool has_weights() const { return weights_.filled(); }
  // Loads the weights of another directory, of a model of the same shape, into the same memory; no
  // step may run. Error (refused, usage or no_fit), without any change, where the models differ or
  // the load has no room beside the run's memory. If the load fails, the model is empty, and steps
  // fail. The runner stays, without its KV blocks.
  void refill(const std::filesystem::path& model, const std::stop_token& stop,
              LoadProgress* progress = nullptr);

 private:
  void fill(const std::stop_token& stop, LoadProgress* progress);
  uint64_t room_to_refill(const std::filesystem::path& model) const;
  BlockCosts block_costs() const;
  void tell(RankCommand command) const;

  Planner& planner_;
  Machine& machine_;
  Lease process_;  // of a draft model: its lists
  std::shared_ptr<const Placed> placed_;
  uint64_t past_peak_ = 0;  // predicted for before the budget was lowered
  ModelWeights weights_;
};

// Between steps of a run: shrinks the budget by a quarter for each new request in `shrink`, and to
// a lowered limit of the cgroup. `followed`: requests that earlier calls have answered.
void follow_limits(LoadedModel& model, const std::atomic<int>& shrink, int& followed);

}  // namespace sluice
