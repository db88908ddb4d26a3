// Plans of a checkpoint on a machine: answers what a run would take, and places it. Answers change
// nothing: src/engine/loaded_model.h loads what was placed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "src/engine/checkpoint.h"
#include "src/engine/machine.h"
#include "src/engine/machine_rates.h"
#include "src/engine/model_options.h"
#include "src/engine/placed.h"
#include "src/nn/group.h"
#include "src/plan/memory_plan.h"

namespace sluice {

class Planner {
 public:
  // Reads headers only: config.json, the checkpoint's index, the tokenizer when there is one.
  // Throws Error(refused). Of several ranks, each makes one of the same options; those of other
  // ranks than 0 then follow() it (src/engine/ranks.h).
  explicit Planner(ModelOptions options) : Planner(std::move(options), nullptr) {}
  // Plans a draft model in the same process: on the machine of `target`, which outlives it. It
  // stays in memory whole.
  Planner(ModelOptions options, Planner& target) : Planner(std::move(options), &target) {}
  // Tells the other ranks the end, on rank 0.
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  const ModelOptions& options() const { return options_; }
  Machine& machine() const { return machine_; }
  Checkpoint& checkpoint() { return checkpoint_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  MachineRates& rates() { return rates_; }
  const MachineRates& rates() const { return rates_; }
  const Group& group() const { return group_; }
  // The ranks that divide each layer of this one's.
  const Group& tensor_group() const {
    return stage_ranks_ ? static_cast<const Group&>(*stage_ranks_) : group_;
  }
  Rank rank() const { return group_.rank(); }
  bool leads() const { return rank().size > 1 && rank().rank == 0; }
  // Error(usage) that begins with `what`, where there are several ranks.
  void need_one_rank(std::string_view what) const;
  // True of a draft model, whose target counts what the process holds.
  bool is_beside() const { return own_machine_ == nullptr; }

  Compute compute() const { return compute_; }
  DType kv_dtype() const;
  // Rows of a step up to which the CPU beside the device multiplies what lies in host memory.
  int64_t cpu_rows() const { return cpu_rows_; }
  // Tokens that a sequence may have: --max-model-len, else the model's own limit.
  int64_t max_model_len() const { return max_model_len_; }
  // Sets --max-model-len auto. `draft`: memory of the draft model for sequences of so many tokens.
  void use_longest(const std::function<DraftMemory(int64_t tokens)>& draft) {
    max_model_len_ = longest_sequence(draft);
  }
  // Memory that reading the headers took, at most [bytes].
  uint64_t headers_bytes() const { return headers_bytes_; }
  // Identifies its weights in a spill cache.
  SpillKey spill_key(const QuantizeRequest& quantize) const;

  RunShape run_shape(int64_t max_tokens, int64_t longest_prompt, int64_t logits_rows,
                     int64_t sequences = 1) const;
  // Places the model, on every rank; Error(no_fit) when the budget is too small.
  std::shared_ptr<const Placed> place(const RunShape& shape);
  // Places a draft model before its target: everything is resident, in half of the budget if both
  // have room. Adds its memory to `target_shape`. Counts with the least if there is no room; the
  // target is refused then.
  std::shared_ptr<const Placed> place_beside(Planner& target, const RunShape& shape,
                                             RunShape& target_shape);
  // Returns `target_shape` with the least memory that a draft model of `shape` takes.
  RunShape least_beside(const RunShape& shape, RunShape target_shape);

  // Plans without placing: the plan of place() if the budget has room; the plan, fitting or not;
  // and the plan with the least memory that works.
  std::optional<MemoryPlan> fitting_plan(const RunShape& shape);
  MemoryPlan predict(const RunShape& shape);
  MemoryPlan smallest(const RunShape& shape);
  // Returns whether the plan of place() would keep everything resident; cheaper than that plan.
  bool can_be_resident(const RunShape& shape);
  bool fits(const MemoryPlan& plan) const {
    return plan.needed() <= machine_.budget() && plan.device.peak() <= machine_.device_budget();
  }
  // The plan of place() for a budget and scheme; throws as it does. Its speed: stages of a pipeline
  // compute one after another, so that a token takes as long as all of them.
  MemoryPlan plan_within(const RunShape& shape, uint64_t budget, const QuantizeRequest& quantize);
  double tokens_per_second(const MemoryPlan& plan, const QuantizeRequest& quantize,
                           int64_t sequences = 1);
  // The reads of a plan for that scheme.
  ReadPlan read_plan_for(const MemoryPlan& plan, const QuantizeRequest& quantize);

  // Places a loaded model again in less memory: with everything but the weights unchanged, and with
  // the least where the machine's budget has no room for it.
  std::shared_ptr<const Placed> placed_smaller(const Placed& placed);
  // Places another checkpoint of the same model in the memory of `placed`. Error, without any
  // change, where the models differ or need other memory.
  std::shared_ptr<const Placed> placed_instead(const Placed& placed, const Checkpoint& other);
  // Plans for the weights of `other` from now on; nothing may refer to the tensors before.
  void take_checkpoint(const std::filesystem::path& model, Checkpoint&& other);

 private:
  Planner(ModelOptions options, Planner* target);
  PartRequest part_request() const;
  void set_limits();
  void set_device_costs();
  void check_place_rules();
  std::shared_ptr<const Placed> placed(const RunShape& shape, uint64_t budget);
  void equal_ranks(const RunShape& shape, MemoryPlan& plan) const;
  uint64_t grown() const;
  uint64_t process_bytes() const { return is_beside() ? 0 : machine_.process_bytes(); }
  uint64_t start_peak() const { return is_beside() ? 0 : machine_.start_peak(); }
  int64_t longest_sequence(const std::function<DraftMemory(int64_t tokens)>& draft);
  // Returns the laid out plan that all plans for one request and origin begin with; valid until the
  // next call.
  ReadPlan& laid_out(const QuantizeRequest& quantize, Origin origin);
  // Returns the same as read_plan_for() for the planner's request, but takes laid_out()'s plan
  // instead of a copy.
  ReadPlan take_read_plan(const MemoryPlan& plan);
  // A request, with what this planner takes of its own beside it.
  RunShape counted(RunShape shape) const;
  // Returns the origin of the plans that stream the most.
  Origin streamed_origin(const QuantizeRequest& quantize);
  RateSetting rate_setting() const;

  ModelOptions options_;
  SoloGroup solo_;
  const Group& group_;
  std::optional<PartGroup> stage_ranks_;  // none: there is one stage
  std::unique_ptr<Machine> own_machine_;  // null: its target's
  Machine& machine_;
  uint64_t peak_before_ = process_peak_rss();
  uint64_t rss_before_ = process_rss();
  Checkpoint checkpoint_;
  uint64_t headers_bytes_ = grown();
  bool can_spill_ = false;  // input-major matrices: there are some, and a directory
  // The request that was asked for last, and whether a directory has room for its copy of them.
  std::optional<std::pair<QuantizeRequest, bool>> spill_room_;
  uint64_t spill_bytes_ = 0;  // limit of the spill directory
  MachineRates rates_;
  double link_cost_ = 0, host_cost_ = 0;  // RunShape::link_cost and host_cost
  int64_t cpu_rows_ = 0;
  Compute compute_ = Compute::bf16;
  int64_t max_model_len_ = 0;
  struct LaidOut {
    QuantizeRequest quantize;
    Origin origin = Origin::checkpoint;
    ReadPlan plan;
  };
  std::optional<LaidOut> laid_out_;  // of the last question
};

}  // namespace sluice
