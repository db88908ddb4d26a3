#include "src/engine/loaded_model.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/load/exchange.h"
#include "src/plan/plan_lists.h"

namespace sluice {

LoadedModel::LoadedModel(Planner& planner, std::shared_ptr<const Placed> placed,
                         std::stop_token stop, LoadProgress* progress)
    : planner_(planner),
      machine_(planner.machine()),
      placed_(std::move(placed)),
      weights_(*planner.checkpoint().model().root, machine_.backend(), machine_.pool(),
               machine_.ledger(), machine_.timeline()) {
  tell(RankCommand::load);
  machine_.ledger().begin_phase("load");
  if (planner_.is_beside())
    process_ = machine_.ledger().lease(Place::host, Use::runtime, "process", memory_plan().runtime);
  machine_.reserve_device();
  planner_.group().together([&] { fill(stop, progress); });
}

void LoadedModel::fill(const std::stop_token& stop, LoadProgress* progress) {
  const ModelOptions& asked = planner_.options();
  MachineRates& rates = planner_.rates();
  std::optional<LoadingRanks> ranks;  // an error on the way is told to the others
  if (planner_.tensor_group().rank().size > 1) ranks.emplace(planner_.tensor_group());
  const FillOptions options{.reader = asked.reader,
                            .read = rates.read_shape().shape,
                            .try_shapes = rates.tries_shapes(),
                            .spill = asked.spill,
                            .spill_key = planner_.spill_key(asked.quantize),
                            .max_quant_error = asked.max_quant_error,
                            .scheduler_slice = asked.scheduler_slice,
                            .touch = asked.touch,
                            .ranks = ranks ? &*ranks : nullptr,
                            .calls = asked.calls};
  LoadProgress unwatched;
  weights_.fill(placed_, planner_.checkpoint().index(), options,
                progress != nullptr ? *progress : unwatched, stop);
  rates.learn_load(weights_);
}

Runner& LoadedModel::runner() {
  Runner* runner = weights_.runner();
  const RankGroups groups{planner_.group(), planner_.tensor_group(),
                          planner_.options().devices.get()};
  return runner != nullptr ? *runner : weights_.make_runner(block_costs(), groups);
}

BlockCosts LoadedModel::block_costs() const {
  const ModelOptions& options = planner_.options();
  const std::filesystem::path& swap = options.swap.directory;
  const Rates rates = planner_.rates().known_of(swap.empty() ? options.model : swap);
  const CausalLM& root = *planner_.checkpoint().model().root;
  const uint64_t slot = kv_layout(root, placed_->shape).slot_bytes();
  return predict_block_costs(slot, placed_->shape.block_size, read_plan(), rates);
}

PromptCache LoadedModel::prompt_cache(const std::filesystem::path& path, int64_t prompt_tokens) {
  const Checkpoint& checkpoint = planner_.checkpoint();
  TextChecksum text;
  text.add(checkpoint.index().identity() + checkpoint.model().files.config.dump());
  for (const ParamPlan& p : read_plan().params)
    text.add(fmt::format("{} {}\n", p.param->path, dtype_name(p.format.dtype)));
  text.add(fmt::format("{} {} {} {}\n", planner_.options().quantize.name(),
                       static_cast<int>(planner_.compute()), dtype_name(placed_->shape.kv_dtype),
                       placed_->shape.block_size));
  if (checkpoint.spec().depends_on_length()) text.add(fmt::format("{}\n", prompt_tokens));
  return runner().prompt_cache(path, text.digits());
}

// After a shrink passes of two kinds were timed; and those of a pipeline are of other ranks'
// weights, too.
void LoadedModel::learn_pass(double seconds) {
  const bool is_whole = planner_.checkpoint().model().root->stage().count() == 1;
  if (past_peak_ == 0 && is_whole) planner_.rates().learn_pass(weights_, seconds);
}

void LoadedModel::shrink(uint64_t budget) {
  if (budget >= machine_.budget()) return;
  if (planner_.rank().size > 1)
    return log::warning("the budget of a run on several ranks cannot be lowered");
  const Device& device = machine_.backend().device();
  if (device.has_own_memory()) {
    log::warning("the budget cannot be lowered while the weights are on {}", device.info().name);
    return;
  }
  machine_.lower_budget(budget);
  std::shared_ptr<const Placed> next = planner_.placed_smaller(*placed_);
  if (const uint64_t needed = next->memory.needed(); needed > budget) {
    log::warning("the budget is {} now, but the run needs {}", format_size(budget),
                 format_size(needed));
    machine_.lower_budget(needed);
  }
  const uint64_t before = memory_plan().weights;
  past_peak_ = predicted_peak();
  if (weights_.filled()) weights_.shrink(next);
  placed_ = std::move(next);
  if (!planner_.is_beside()) machine_.hold_process(*placed_);
  machine_.follow_budget();
  log::info("the budget is {} now: {} of weights stay in memory instead of {}, {} are read a pass",
            format_size(machine_.budget()), format_size(memory_plan().weights), format_size(before),
            format_size(memory_plan().sweep_bytes));
}

void LoadedModel::follow_cgroup() {
  if (const std::optional<uint64_t> budget = machine_.lowered_limit()) shrink(*budget);
}

void LoadedModel::release() {
  weights_.release();
  machine_.free_device();
  malloc_trim(0);
}

void LoadedModel::reload(const std::stop_token& stop, LoadProgress* progress) {
  machine_.ledger().begin_phase("load");
  machine_.reserve_device();
  fill(stop, progress);
}

// The most that exchanging the weights takes beside the run's memory. Headers and plan of the new
// ones are there before the old ones go; they are of the same model, and take about as much as
// those did. Then the load has its staging, where a stream was.
uint64_t LoadedModel::room_to_refill(const std::filesystem::path& model) const {
  const PlanLists lists = plan_lists(read_plan());
  const uint64_t before = planner_.headers_bytes() + lists.plan + lists.making;
  const uint64_t load = read_plan().ring_bytes + lists.load;
  const uint64_t stream = memory_plan().stream;
  const uint64_t room = std::max(before, load - std::min(load, stream));
  const uint64_t needed = memory_plan().run_peak() + room;
  if (needed + kernel_bytes(needed) > machine_.budget()) {
    fail(ErrorKind::no_fit,
         "{}: loading it beside the run's own memory takes {}, and the budget is {}; give more "
         "--memory",
         model.string(), format_size(needed + kernel_bytes(needed)),
         format_size(machine_.budget()));
  }
  return room;
}

void LoadedModel::refill(const std::filesystem::path& model, const std::stop_token& stop,
                         LoadProgress* progress) {
  planner_.need_one_rank("exchanging the weights");
  const uint64_t room = room_to_refill(model);
  const PlanLists lists = plan_lists(read_plan());
  Lease beside = machine_.ledger().lease(Place::host, Use::runtime, "headers of other weights",
                                         planner_.headers_bytes() + lists.plan + lists.making);
  const ModelPlace place(model, {}, planner_.options().outside_links);
  std::optional<Checkpoint> other(std::in_place, place, planner_.options().needs_head);
  std::shared_ptr<const Placed> next = planner_.placed_instead(*placed_, *other);
  weights_.empty();
  machine_.ledger().begin_phase("load");
  past_peak_ = std::max(predicted_peak(), memory_plan().run_peak() + room);
  planner_.take_checkpoint(model, *std::move(other));
  placed_ = std::move(next);
  other.reset();
  beside = {};
  malloc_trim(0);
  fill(stop, progress);
  machine_.ledger().begin_phase("run");
}

void follow_limits(LoadedModel& model, const std::atomic<int>& shrink, int& followed) {
  for (int asked = shrink.load(); followed < asked; ++followed)
    model.shrink(model.planner().machine().budget() / 4 * 3);
  model.follow_cgroup();
}

}  // namespace sluice
